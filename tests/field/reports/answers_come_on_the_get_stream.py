"""Area: servers
Source: modelcontextprotocol/ruby-sdk#294
Met: As soon as a client listens on the session's own GET stream, the official Ruby server sends the answers to its requests there, and answers the POST with 202 and
nothing; without that stream it answers the POST (ruby-sdk#245 changed the 202; servers on an old rmcp did the same with an empty event stream: r33drichards/mcp-js#185).
First try: fail: raincheck itself opens the GET stream before the call of a modern client, so the server answers there. raincheck reads answers on that stream, but the 202 (or the
empty stream) of the POST ends the call first: "HTTP 202 Accepted; it may have run". The same with a task of a legacy client that listens.
Verdict: Mended: where the session's own stream is open, a POST that ends with 202 or with an empty event stream waits for its answer on that stream, until the stream
ends or the time of the call is over, and the session serves the next call.
"""

import threading

from house import until
from servers import LegacyServer, event, reply

HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Server(LegacyServer):
    """One stream for each session; where it is open, all answers go there."""

    def __init__(self, posted):
        self.streams, self.posted, self.late = {}, posted, threading.Event()
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            self.streams[headers.get("mcp-session-id")] = connection
            connection.sendall(f"{HEAD}: hello\n\n".encode())
            self.late.wait(30)
            return False
        return super().on(connection, method, path, headers, body)

    def result(self, message, connection, headers):
        message["session"] = headers.get("mcp-session-id")
        return super().result(message, connection, headers)

    def write(self, connection, out, message, headers):
        stream = self.streams.get(message["session"])
        if message["method"] == "initialize" or not stream:
            reply(connection, out, headers=headers)
        elif self.posted == "202":
            stream.sendall(event(out).encode())
            reply(connection, b"", kind=None, status="202 Accepted")
        else:
            stream.sendall(event(out).encode())
            reply(connection, b"", "text/event-stream")


def with_listener(raincheck, session):
    """The client listens, as the official clients do after `initialize`. Returns what it heard, later."""
    heard = []
    head = {**session.headers, "accept": "text/event-stream"}
    listening = threading.Thread(target=lambda: heard.append(raincheck.http("GET", headers=head, seconds=3)), daemon=True)
    listening.start()
    return heard, listening


def tries(field, posted):
    server = Server(posted)
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "200ms"\n')
    failed = []
    # On a session of a legacy client, the answer comes on the client's own stream, as it does without raincheck.
    session = raincheck.session()
    heard, listening = with_listener(raincheck, session)
    until("the client's stream is at the server", lambda: server.streams)
    session.ask("tools/list", id=1)
    task = session.ask("tools/call", {"name": "slow", "arguments": {"s": 0.5}, "task": {}}, id=2)
    listening.join(10)
    if heard and not any(m.get("id") == 1 and "result" in m for m in heard[0].messages()):
        failed.append(f"{posted}: no list on the stream of a legacy client: {heard[0].text}")
    if task.status == 200 and "task" in task.answer(2).get("result", {}):
        name = task.answer(2)["result"]["task"]["taskId"]
        end = session.ask("tasks/result", {"taskId": name}, id=3)
        if end.status != 200 or "result" not in end.answer(3):
            failed.append(f"{posted}: a task of a legacy client: {end.status} {end.text[:300]}")
    # A modern client.
    for tasks in (False, True):
        answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.5 if tasks else 0}}, tasks=tasks).answer(7)
        if answer.get("result", {}).get("resultType") == "task":
            answer = raincheck.finished(answer["result"]["taskId"])["result"]
        if "content" not in answer.get("result", {}):
            failed.append(f"{posted}: a call of a modern client{' with tasks' * tasks}: {answer}")
    server.late.set()
    return failed


def test(field):
    failed = tries(field, "202") + tries(field, "an empty stream")
    assert not failed, "\n".join(failed)
