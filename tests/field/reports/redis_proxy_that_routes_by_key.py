"""Area: Redis
Source: twitter/twemproxy#60
Met: A proxy in front of Redis sends each script to the server of its first key, so it refused or ignored EVAL with no key at all.
First try: fail: every script that tasks need has keys, but the trial at the start has none ("return 1" 0, and the look for rights), so raincheck ended with "does not let us run scripts".
Verdict: Mended: on one server every script names a key of the namespace.
"""

import contextlib
import socket
import threading

from servers import LegacyServer


class ByKey:
    """Passes commands to Redis one by one, and refuses scripts without keys, as proxies of rented clusters do."""

    def __init__(self, port):
        self.to = port
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
                raw, words = head, []
                for _ in range(int(head[1:])):
                    size = asks.readline()
                    data = asks.read(int(size[1:]) + 2)
                    raw += size + data
                    words.append(data[:-2])
                if words[0].upper() in (b"EVAL", b"EVALSHA") and words[2] == b"0":
                    client.sendall(b"-ERR eval/evalsha number of keys can't be negative or zero\r\n")
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


def test(field):
    server = LegacyServer()
    proxy = ByKey(field.redis())
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{proxy.port}", config=settings)
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
    assert raincheck.finished(task)["result"]["status"] == "completed"
