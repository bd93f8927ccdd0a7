"""Area: servers
Source: nodejs/node#20256
Met: A server ends connections after an answer, or when they were idle for a while, without having said so; a client that uses its connection again just then gets a reset in
place of an answer.
First try: fail: the end often meets raincheck's own `notifications/initialized`, which goes out over the connection of `initialize` at once; then the client's call fails
with "The server's answer was not a valid MCP message", although the session is there, nothing ran, and the notification could be sent over a new connection.
Verdict: Mended: `initialize` and the messages that have no answer (`notifications/initialized`, cancels, answers to questions) are sent once more over another connection
when theirs breaks. A call is never sent twice.
"""

import json
import threading

from house import until
from servers import LegacyServer


class Server(LegacyServer):
    """Ends each connection after an answer; or, with `late`, when a call comes on one that was used before."""

    late, ends = False, True

    def __init__(self):
        self.closed, self.cut, self.used = threading.Semaphore(0), [], set()
        super().__init__()

    def serve(self, connection):
        super().serve(connection)
        connection.close()
        self.closed.release()

    def on(self, connection, method, path, headers, body):
        if self.late and method == "POST" and connection in self.used and json.loads(body).get("method") == "tools/call":
            self.cut.append(json.loads(body)["params"])
            return False
        super().on(connection, method, path, headers, body)
        self.used.add(connection)
        return False if self.ends and not self.late else None


def idle(server):
    """The connection of the request before has ended at the server, whole milliseconds ago."""
    until("the connection ends", lambda: server.closed.acquire(blocking=False))
    while server.closed.acquire(timeout=0.05):
        pass


def call(raincheck, turn, **head):
    return raincheck.modern("tools/call", {"name": "slow", "arguments": {"turn": turn}}, tasks=False, headers=head).answer(7)


def test(field):
    failed = []
    # The connection ended long before the call, and the session is there: nothing can fail.
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    server.ends = False
    session = raincheck.session()
    # raincheck has read the list of tools, too.
    until("the list is read", lambda: "result" in session.call("slow") and any(method == "tools/list" for method, _, _ in server.seen))
    server.ends = True
    session.call("slow")
    for turn in range(6):
        idle(server)
        answer = session.call("slow")
        assert "result" in answer, (turn, answer, [method for method, _, _ in server.seen])

    # The end comes with a call: nobody knows whether it ran, and it is sent once.
    server = Server()
    server.late = True
    raincheck = field.raincheck("--upstream", server.url)
    raincheck.modern("tools/list")
    for turn in range(4):
        answer = call(raincheck, turn)
        times = sum(params["arguments"].get("turn") == turn for params in server.cut)
        times += sum(method == "tools/call" and message["params"]["arguments"].get("turn") == turn for method, message, _ in server.seen)
        assert times == 1, (turn, times)
        if "error" in answer:
            assert answer["error"]["data"]["io.raincheck/effect"] == "unknown", answer
    assert server.cut, "no connection was used again"

    # The end comes with the requests of a new session. They are raincheck's own, and can be sent again.
    server = Server()
    raincheck = field.raincheck("--upstream", server.url)
    for turn in range(16):
        answer = call(raincheck, turn, authorization=f"Bearer caller-{turn}")
        data = answer.get("error", {}).get("data", {})
        # The end may meet the call, too, and then nobody knows.
        if data and data["io.raincheck/reason"] != "upstream_reset":
            failed.append(f"{turn}: {answer['error']['message']} {data}")
        idle(server)
    assert not failed, "\n".join(failed)
