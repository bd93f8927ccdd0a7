"""Area: Redis
Source: directus/directus#20500
Met: A rented Redis takes requests of one megabyte at most and refuses a larger one with an error, so large values could not be stored and what wanted to store them went wrong.
First try: fail: a task whose result is larger than Redis takes stays `working` for as long as it was looked at (a minute and more), with no line in the log, while raincheck sends the whole result again twice a second, although each answer is the same error. The same where Redis ends the connection instead (proto-max-bulk-len, client-query-buffer-limit).
Verdict: Mended: a result, or a round of questions, that the store refuses five times while it takes a small write beside it is given up. The task fails with `store_lost`, and one line of the log has the words of Redis.
"""

import contextlib
import socket
import threading

from house import until
from servers import LegacyServer, content

LIMIT = 1_048_576


class Rented:
    """Passes commands to Redis one by one, and refuses those that are too large."""

    def __init__(self, port):
        self.to, self.refused = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with contextlib.suppress(OSError, ValueError), client, socket.create_connection(("127.0.0.1", self.to)) as server:
            asks, answers = client.makefile("rb"), server.makefile("rb")
            while head := asks.readline():
                raw = head
                for _ in range(int(head[1:])):
                    size = asks.readline()
                    raw += size + asks.read(int(size[1:]) + 2)
                if len(raw) > LIMIT:
                    self.refused += 1
                    client.sendall(b"-ERR max request size exceeded. Limit: %d bytes, Actual: %d bytes\r\n" % (LIMIT, len(raw)))
                    continue
                server.sendall(raw)
                client.sendall(reply(answers))


def reply(answers):
    line = answers.readline()
    if not line:
        raise OSError("Redis is away")
    kind, count = line[:1], line[1:]
    if kind == b"$" and int(count) >= 0:
        return line + answers.read(int(count) + 2)
    if kind == b"*":
        return line + b"".join(reply(answers) for _ in range(int(count)))
    return line


class Server(LegacyServer):
    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return content("x" * message["params"]["arguments"].get("n", 1))


def test(field):
    server = Server()
    rented = Rented(field.redis())
    ending = field.redis("--proto-max-bulk-len", "1mb")
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    stuck = []
    for port in (rented.port, ending):
        raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{port}", config=settings)
        large = {"name": "slow", "arguments": {"s": 0.2, "n": 3_000_000}}
        task = raincheck.modern("tools/call", large).answer(7)["result"]["taskId"]
        # Tasks of others are not held up.
        other = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(other)["result"]["status"] == "completed"
        # The server has answered, and Redis has said no: the task ends, as any whose result cannot be kept.
        ended = lambda raincheck=raincheck, task=task: raincheck.modern("tasks/get", {"taskId": task}).answer(7)["result"]["status"] != "working"
        try:
            until("the task ends", ended, 9)
        except AssertionError:
            warned = [line for line in raincheck.log().splitlines() if " WARN " in line and "open:" not in line]
            stuck.append(f"working; {len(warned)} warnings; refused {rented.refused} times")
    assert not stuck, stuck
    assert rented.refused < 10, rented.refused
