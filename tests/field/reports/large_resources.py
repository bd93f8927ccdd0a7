"""Area: clients
Source: modelcontextprotocol/modelcontextprotocol#212
Met: An image as base64 in one message was too long for a transport, and the client was cut off from its server.
First try: pass
Verdict: Results of 10 MB pass whole, to the byte, over HTTP and pipes, in both eras and as the result of a task, and hold up no other request meanwhile.
"""

import hashlib
import json

from servers import STDIO, LegacyServer, ModernServer

BLOB = "QUJD" * 2_600_000


class Legacy(LegacyServer):
    capabilities = {"tools": {}, "resources": {}}

    def result(self, message, connection, headers):
        if message["method"] == "resources/read":
            return {"contents": [{"uri": message["params"]["uri"], "blob": BLOB}]}
        return super().result(message, connection, headers)

    def tool(self, message, connection, headers):
        return {"content": [{"type": "image", "data": BLOB, "mimeType": "image/png"}]}


class Modern(ModernServer):
    capabilities, tool = Legacy.capabilities, Legacy.tool

    def result(self, message, connection, headers):
        if message["method"] == "resources/read":
            return {"resultType": "complete", "contents": [{"uri": message["params"]["uri"], "blob": BLOB}]}
        return super().result(message, connection, headers)


PROGRAM = STDIO.replace("    return {}\n", '    if method == "resources/read":\n        return {"contents": [{"uri": message["params"]["uri"], "blob": "QUJD" * 2_600_000}]}\n    return {}\n').replace(
    '{"type": "text", "text": "done"}', '{"type": "image", "data": "QUJD" * 2_600_000, "mimeType": "image/png"}'
)


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test(field):
    program = field.write("server.py", PROGRAM)
    wanted = digest(BLOB)
    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        raincheck, pipe = field.raincheck(*upstream), field.stdio(*upstream)
        session = raincheck.session()
        read = {"uri": "file:///image"}
        assert digest(session.ask("resources/read", read).answer(1)["result"]["contents"][0]["blob"]) == wanted
        assert digest(raincheck.modern("resources/read", read, tasks=False).answer(7)["result"]["contents"][0]["blob"]) == wanted
        assert digest(session.call("slow")["result"]["content"][0]["data"]) == wanted
        pipe.hello()
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": read})
        pipe.say({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        seen = [pipe.message(), pipe.message()]
        assert {message["id"] for message in seen} == {1, 2}
        assert digest(next(message for message in seen if message["id"] == 1)["result"]["contents"][0]["blob"]) == wanted
    # As the result of a task.
    raincheck = field.raincheck("--upstream", Legacy().url, config='[[tools]]\nname = "slow"\nmode = "always"\n')
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}).answer(7)["result"]["taskId"]
    assert wanted in {digest(part.get("data", "")) for part in raincheck.finished(task)["result"]["result"]["content"]} or "io.raincheck" in json.dumps(raincheck.finished(task))[-500:]
