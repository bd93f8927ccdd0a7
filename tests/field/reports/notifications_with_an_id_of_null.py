"""Area: servers
Source: modelcontextprotocol/python-sdk#2057
Met: The official Python library takes a message with a method and `"id": null` for a notification, as JSON-RPC 1 had it; programs whose serializer writes every member
send their notifications so.
First try: fail: raincheck takes such a notification of a server for a request, answers it with an error whose id is null (-32601), and a modern client and its task never
get the progress. It reads the same notification without the member well.
Verdict: Mended: a message of a server with a method and the id null is a notification: it is never answered, and its progress reaches the client, over HTTP and pipes.
"""

import json

from servers import LegacyServer, content, event

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Server(LegacyServer):
    def tool(self, message, connection, headers):
        token = message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1, "total": None, "message": "half of it"}
        connection.sendall((HEAD + event({"jsonrpc": "2.0", "id": None, "method": "notifications/progress", "params": params})).encode())
        super().tool(message, connection, headers)
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": content("done")}).encode())
        return False


PROGRAM = """
import json, sys
def say(message): print(json.dumps(message), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m.get("id", 0) is None and "error" in m:
        sys.stderr.write("ANSWERED\\n"); sys.stderr.flush()
    if "id" not in m or "method" not in m:
        continue
    out = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        say(out | {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}})
    elif m["method"] == "tools/call":
        params = {"progressToken": m["params"]["_meta"]["progressToken"], "progress": 1, "message": "half of it"}
        say({"jsonrpc": "2.0", "id": None, "method": "notifications/progress", "params": params})
        say(out | {"result": {"content": [{"type": "text", "text": "done"}]}})
    elif m["method"] == "tools/list":
        say(out | {"result": {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}})
    else:
        say(out | {"error": {"code": -32601, "message": "Method not found"}})
"""


def test(field):
    failed = []
    server = Server()
    for name, raincheck in (
        ("http", field.raincheck("--upstream", server.url)),
        ("program", field.raincheck("--", "python3", field.write("server.py", PROGRAM))),
    ):
        # Each client gets the result, and the progress before it.
        session = raincheck.session()
        old = session.ask("tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": "t"}})
        assert old.answer(1)["result"]["content"][0]["text"] == "done", name
        assert "half of it" in old.text, (name, old.text)
        new = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, meta={"progressToken": "t"})
        assert new.answer(7)["result"]["content"][0]["text"] == "done", name
        if "half of it" not in new.text:
            failed.append(f"{name}: a modern client got no progress: {new.text}")
        if "ANSWERED" in raincheck.log():
            failed.append(f"{name}: the notification was answered")
    answers = [json.dumps(message) for method, message, _ in server.seen if method == "answer"]
    if answers:
        failed.append(f"http: the notification was answered: {answers}")
    assert not failed, "\n".join(failed)
