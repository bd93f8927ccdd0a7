"""Area: servers
Source: modelcontextprotocol/csharp-sdk#1527
Met: One side writes `application/json; charset=utf-8` and the other knows `application/json` only: servers refuse such requests with 415 or 400, clients such answers
(mark3labs/mcp-go#501, ThinkInAIXYZ/go-mcp#136).
First try: pass
Verdict: raincheck takes such types from both sides, also in capitals or of another kind, and what it sends for a client of 2026-07-28 says plain `application/json`.
"""

import json

from servers import LegacyServer, event, reply


class Server(LegacyServer):
    """Refuses requests with a parameter, as the servers of the report do."""

    answer = ("application/json; charset=utf-8", json.dumps)

    def on(self, connection, method, path, headers, body):
        if method == "POST" and headers.get("content-type") != "application/json":
            return reply(connection, "Content-Type must be 'application/json'", "text/plain", status="415 Unsupported Media Type")
        return super().on(connection, method, path, headers, body)

    def write(self, connection, out, message, headers):
        kind, form = self.answer
        reply(connection, form(out), kind, headers=headers)


ANSWERS = [
    ("application/json; charset=utf-8", json.dumps),
    ("Application/JSON;Charset=UTF-8", json.dumps),
    ("text/plain; charset=utf-8", json.dumps),
    ("application/json-rpc", json.dumps),
    ("text/event-stream;charset=UTF-8", event),
    ("Text/Event-Stream", event),
]


def test(field):
    for kind, form in ANSWERS:
        server = Server()
        server.answer = (kind, form)
        raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
        head = {"content-type": "application/json; charset=utf-8"}
        plain = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, headers=head).answer(7)
        assert "content" in plain.get("result", {}), (kind, plain)
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}, headers=head).answer(7)["result"]
        assert raincheck.finished(task["taskId"])["result"]["status"] == "completed", kind
        assert "content" in raincheck.session().call("slow")["result"], kind
        raincheck.child.terminate()
