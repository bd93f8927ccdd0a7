"""Area: Redis
Source: redis-rs/redis-rs#1415
Met: Redis, or a balancer in front of it, ended connections that were idle, and the next command after the pause failed with a broken pipe.
First try: pass
Verdict: A command whose connection was gone is repeated over a new one within the patience for the store, which is safe because every write carries a nonce. The same with connections that are killed in the middle of work.
"""

import contextlib
import socket
import subprocess
import threading
import time

from servers import LegacyServer


class Balancer:
    """Ends a connection that was silent for a second, as HAProxy does after its timeout."""

    def __init__(self, port):
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source, target):
        source.settimeout(1.5)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test(field):
    server = LegacyServer()
    by_itself = field.redis("--timeout", "1")
    balanced = Balancer(field.redis()).port
    killed = field.redis()
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    stores = (by_itself, balanced, killed)
    rainchecks = [(port, field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{port}", config=settings)) for port in stores]
    calls = 0
    for _ in range(2):
        time.sleep(2.2)
        for port, raincheck in rainchecks:
            for _ in range(2):
                if port == killed:
                    kill = ["redis-cli", "-p", str(port), "client", "kill", "type", "normal", "skipme", "yes"]
                    subprocess.run(kill, stdout=subprocess.DEVNULL, check=True)
                begun = time.monotonic()
                task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]
                assert "taskId" in task, f"{port} of {stores}: {task}"
                assert raincheck.finished(task["taskId"])["result"]["status"] == "completed"
                assert time.monotonic() - begun < 3
                calls += 1
    assert server.runs == calls
