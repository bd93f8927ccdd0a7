"""Area: servers
Source: modelcontextprotocol/rust-sdk#849
Met: Servers answer `notifications/initialized` with 200 and nothing, 204, text, or an answer with id null, where 202 without a body is due, and clients break in the
handshake (helidon-io/helidon-mcp#175, modelcontextprotocol/java-sdk#748, oramasearch/oramacore#335).
First try: pass
Verdict: Whatever a server says to a notification, the session goes on: raincheck reads no message from it.
"""

import json

from servers import LegacyServer, reply

SAID = {
    "200 with nothing": {"body": b"", "kind": None},
    "200 with a type": {"body": b"", "kind": "application/json"},
    "200 with an id of null": {"body": {"jsonrpc": "2.0", "id": None}},
    "200 with a result": {"body": {"jsonrpc": "2.0", "id": None, "result": {}}},
    "200 with ok": {"body": "ok", "kind": "text/plain"},
    "202 with text": {"body": "Accepted", "kind": "text/plain; charset=utf-8", "status": "202 Accepted"},
    "204": {"body": b"", "kind": None, "status": "204 No Content", "headers": {"content-length": None}},
    "400 with an error": {"body": {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no id"}}, "status": "400 Bad Request"},
    "404": {"body": "Not Found", "kind": "text/plain", "status": "404 Not Found"},
    "500": {"body": "oops", "kind": "text/plain", "status": "500 Internal Server Error"},
}


class Server(LegacyServer):
    def on(self, connection, method, path, headers, body):
        if method == "POST" and "id" not in json.loads(body):
            return reply(connection, **self.said)
        return super().on(connection, method, path, headers, body)


def test(field):
    for name, said in SAID.items():
        server = Server()
        server.said = said
        raincheck = field.raincheck("--upstream", server.url)
        for _ in range(2):
            plain = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
            assert "content" in plain.get("result", {}), (name, plain)
        assert sum(method == "initialize" for method, _, _ in server.seen) == 1, (name, "the session did not last")
        session = raincheck.session()
        assert "content" in session.call("slow")["result"], name
        raincheck.child.terminate()
