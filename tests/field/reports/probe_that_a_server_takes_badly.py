"""Area: servers
Source: modelcontextprotocol/rust-sdk#1040
Met: Servers of 2025 answer the first request of a newer client, `server/discover`, with whatever they have for a method that they do not know: an HTTP error, a closed connection
or silence; clients that fall back to `initialize` for some of these only cannot use servers that worked before (go-sdk#1014 then fell back for any error, rust-sdk#1149 for
silence, csharp-sdk#1766 for a status; go-sdk#1177 met programs that end).
First try: fail: where the server answers the probe with HTTP 500 and a page or ends the connection, no request of a modern client was ever served: raincheck did not try
`initialize`. The error of the call, which was never sent, said "it may have run".
Verdict: Mended: a server that begins a session when it is asked with `initialize` is a legacy one. Silence is in `probe_without_an_answer`.
"""

import json
import time

from servers import LegacyServer, reply

PROBED = {
    "404 with a page": lambda c, id: reply(c, "<html>Not Found</html>", "text/html", "404 Not Found"),
    "400 for the session": lambda c, id: reply(c, "Bad Request: Missing session ID", "text/plain", "400 Bad Request"),
    "200 with nothing": lambda c, id: reply(c, b"", kind=None),
    "500 with a page": lambda c, id: reply(c, "<html>Internal Server Error</html>", "text/html", "500 Internal Server Error"),
    "500 with an error": lambda c, id: reply(c, {"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "Internal error"}}, status="500 Internal Server Error"),
    "the end of the connection": lambda c, id: False,
}

PROGRAM = """
import json, sys
def say(message): print(json.dumps(message), flush=True)
begun = False
for line in sys.stdin:
    m = json.loads(line)
    if not begun and m.get("method") != "initialize":
        sys.exit("expected an initialize request")
    begun = True
    if "id" not in m or "method" not in m:
        continue
    about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
    tools = {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
    done = {"content": [{"type": "text", "text": "run 1"}]}
    say({"jsonrpc": "2.0", "id": m["id"], "result": {"initialize": about, "tools/list": tools, "tools/call": done}.get(m["method"], {})})
"""


class Server(LegacyServer):
    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if message.get("method") == "server/discover":
            return self.probed(connection, message["id"])
        return super().on(connection, method, path, headers, body)


def test(field):
    running = {"a program that ends": field.raincheck("--", "python3", field.write("old.py", PROGRAM))}
    for name, probed in PROBED.items():
        server = Server()
        server.probed = probed
        running[name] = field.raincheck("--upstream", server.url)
        # Through raincheck, a legacy client uses the server without trouble.
        assert "result" in running[name].session().call("slow"), name
    failed = []
    for name, raincheck in running.items():
        began = time.monotonic()
        answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, seconds=12)
        took = time.monotonic() - began
        if '"result"' not in answer.text:
            failed.append(f"{name}: after {took:.0f} s: {answer.status} {answer.text[:200]}")
    assert not failed, "\n".join(failed)
