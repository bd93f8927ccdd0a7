"""Area: servers
Source: xpzouying/xiaohongshu-mcp#697
Met: A server refuses `initialize` of the newest revision, with HTTP 400 or with -32602 and the revisions that it supports, in place of answering with an older one, so
that no newer client connects (feichai0017/NoKV#384 is the same in another server).
First try: fail: every request of a modern client ends with the refusal, although the refusal says which revisions the server speaks, raincheck speaks them too, and a client
of 2025-06-18 uses the same server through raincheck without trouble.
Verdict: Mended: where a server refuses `initialize` and names older revisions that raincheck speaks, raincheck asks once more with the newest of them, over HTTP and over pipes.
"""

import json

from servers import LegacyServer, reply

OLD = ["2025-06-18", "2025-03-26", "2024-11-05"]


class Server(LegacyServer):
    version = "2025-06-18"

    def __init__(self, refusal):
        self.refusal = refusal
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        asked = message.get("params", {}).get("protocolVersion") if message.get("method") == "initialize" else headers.get("mcp-protocol-version")
        if asked and asked not in OLD:
            if self.refusal == "text":
                text = f"Bad Request: Unsupported protocol version (supported versions: {', '.join(OLD)})\n"
                return reply(connection, text, "text/plain; charset=utf-8", status="400 Bad Request")
            data = {"supported": OLD, "requested": asked}
            error = {"code": -32602, "message": "Unsupported protocol version", "data": data}
            status = "400 Bad Request" if self.refusal == "400" else "200 OK"
            return reply(connection, {"jsonrpc": "2.0", "id": message.get("id"), "error": error}, status=status)
        return super().on(connection, method, path, headers, body)


PROGRAM = """
import json, sys
OLD = ["2025-06-18", "2025-03-26", "2024-11-05"]
def say(message): print(json.dumps(message), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    out = {"jsonrpc": "2.0", "id": m["id"]}
    if m["method"] == "initialize":
        asked = m["params"]["protocolVersion"]
        if asked not in OLD:
            say(out | {"error": {"code": -32602, "message": "Unsupported protocol version", "data": {"supported": OLD, "requested": asked}}})
            continue
        say(out | {"result": {"protocolVersion": asked, "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}})
    elif m["method"] == "tools/call":
        say(out | {"result": {"content": [{"type": "text", "text": "run 1"}]}})
    elif m["method"] == "tools/list":
        say(out | {"result": {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}})
    else:
        say(out | {"error": {"code": -32601, "message": "Method not found"}})
"""


def test(field):
    failed = []
    for refusal in ("200", "400", "text", "program"):
        if refusal == "program":
            raincheck = field.raincheck("--", "python3", field.write("old.py", PROGRAM))
        else:
            raincheck = field.raincheck("--upstream", Server(refusal).url)
        # A client that asks for what the server has is served, which shows that the server is whole.
        old = raincheck.session("2025-06-18")
        assert old.call("slow")["result"]["content"][0]["text"].startswith("run"), refusal
        answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
        if "result" not in answer:
            failed.append(f"{refusal}: {answer['error']}")
    assert not failed, "\n".join(failed)
