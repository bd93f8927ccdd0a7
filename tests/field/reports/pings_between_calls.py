"""Area: servers
Source: microsoft/playwright#41373
Met: A server pings its client every few seconds and ends the session, with the browser in it, when a proxy in between leaves one ping without an answer.
First try: pass
Verdict: raincheck answers pings on sessions of its own, between calls and during one, on the call's stream and on the session's; pings on a session of a legacy client go to
that client.
"""

import json
import threading
import time

from house import until
from servers import LegacyServer, content, event

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Server(LegacyServer):
    """Pings on the session's stream, and ends a session whose client is silent for a second."""

    def __init__(self):
        self.answered, self.ended = {}, set()
        super().__init__()

    def ping(self, connection, session, name):
        connection.sendall(event({"jsonrpc": "2.0", "id": name, "method": "ping"}).encode())
        try:
            until("an answer", lambda: name in self.answered, 1)
        except AssertionError:
            self.ended.add(session)

    def on(self, connection, method, path, headers, body):
        session = headers.get("mcp-session-id")
        if method == "GET":
            connection.sendall(HEAD)
            for number in range(20):
                self.ping(connection, session, f"{session}-{number}")
                time.sleep(0.2)
            return False
        message = json.loads(body) if method == "POST" else {}
        if "method" not in message and "id" in message:
            self.answered[message["id"]] = message
        if message.get("method") == "tools/call":
            connection.sendall(HEAD)
            for number in range(3):
                self.ping(connection, session, f"call-{session}-{number}")
            connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": content("done")}).encode())
            return False
        return super().on(connection, method, path, headers, body)


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
    time.sleep(2.5)
    assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
    assert not server.ended, (server.ended, list(server.answered))
    assert sum(method == "initialize" for method, _, _ in server.seen) == 1, "the session did not last"
    assert len(server.answered) >= 14 and all(m.get("result") == {} for m in server.answered.values()), server.answered
    # The client of a session of its own hears the pings itself.
    session = raincheck.session()
    got = []
    head = {**session.headers, "accept": "text/event-stream"}
    threading.Thread(target=lambda: got.append(raincheck.http("GET", headers=head, seconds=1)), daemon=True).start()
    until("the stream", lambda: got)
    assert got[0].messages()[0]["method"] == "ping", got[0].text
