"""Area: servers
Source: render-oss/render-mcp-server#26
Met: A server keeps a session's stream for two minutes after its connection ended, refuses a new one with 400 "already exists" meanwhile, and clients give the whole session up.
First try: pass
Verdict: A stream that cannot be opened again costs nothing but its messages: calls go on over the same session, and the stream is tried again with growing pauses.
"""

import time

from servers import LegacyServer, reply


class Server(LegacyServer):
    capabilities = {"tools": {"listChanged": True}}
    status = "400 Bad Request"

    def __init__(self):
        self.streams, self.refused = set(), 0
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if method != "GET":
            return super().on(connection, method, path, headers, body)
        if (session := headers.get("mcp-session-id")) in self.streams:
            self.refused += 1
            return reply(connection, "Session registration failed: session already exists", "text/plain", self.status)
        self.streams.add(session)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\n\n")
        time.sleep(0.5)
        return False


def test(field):
    for status in ("400 Bad Request", "409 Conflict"):
        server = Server()
        server.status = status
        raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
        for turn in range(5):
            answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
            assert "result" in answer, (status, turn, answer)
            task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
            assert raincheck.finished(task)["result"]["status"] == "completed", (status, turn)
        assert server.refused, "the stream was not tried again"
        assert server.refused < 12, server.refused
        assert sum(method == "initialize" for method, _, _ in server.seen) == 1, "the session did not last"
