"""Area: clients
Source: GLips/Figma-Context-MCP#362
Met: A server sent a last progress message just behind the result of its call; hosts took the unknown token for a broken transport, dropped the server and started it again after every call.
First try: fail: where calls pass in front of a program, late progress went to the client: behind the answer over `raincheck stdio` with `companion_tools = false`, and on the GET stream of a session over HTTP. Calls that raincheck carries are right
Verdict: Mended: progress of a request that is over goes to nobody.
"""

import contextlib
import json
import socket
import time

from servers import STDIO

LATE = (
    STDIO.replace("import json, sys, time", "import json, sys, time, threading")
    .replace('"result": result(message)})', '"result": result(message)})\n        if message["method"] == "tools/call":\n            token = (message["params"].get("_meta") or {}).get("progressToken")\n            for n in (1, 2, 3):\n                if token is not None: say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": n}})')
)
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": {"progressToken": "t"}}}


def get_stream(session, seconds):
    """What comes on a GET stream of the session within the time."""
    raincheck = session.raincheck
    head = {"host": f"127.0.0.1:{raincheck.port}", "accept": "text/event-stream", **session.headers}
    connection = socket.create_connection(("127.0.0.1", raincheck.port), 5)
    connection.sendall("\r\n".join(["GET /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode())
    assert b" 200 " in connection.recv(64)

    def heard():
        out, end = b"", time.monotonic() + seconds
        with connection, contextlib.suppress(OSError):
            while (left := end - time.monotonic()) > 0:
                connection.settimeout(left)
                out += connection.recv(65536)
        return out

    return heard


def test(field):
    program = field.write("server.py", LATE)
    wrong = []
    for config in (None, "[tasks]\ncompanion_tools = false\n"):
        pipe = field.stdio("--", "python3", program, config=config)
        pipe.hello()
        pipe.say(CALL)
        assert pipe.answer(1)["result"]["content"]
        before = len(pipe.seen)
        pipe.say({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        pipe.answer(2)
        if late := [message for message in pipe.seen[before:] if "method" in message]:
            wrong.append(f"stdio, {config}: {json.dumps(late[0])}")
        session = field.raincheck("--", "python3", program, config=config).session()
        heard = get_stream(session, 2)
        said = session.say(CALL)
        assert said.answer(1)["result"]["content"]
        if b"progressToken" in (stream := heard()):
            wrong.append(f"GET stream, {config}: {stream[-150:]}")
    assert not wrong, "\n".join(wrong)
