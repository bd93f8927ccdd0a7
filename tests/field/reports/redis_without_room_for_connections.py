"""Area: Redis
Source: redis/node-redis#1290
Met: Redis had as many clients as it takes, so new connections were refused, and processes that met this ended or opened ever more.
First try: fail: all goes on as it should, but `raincheck check` (and the start) say of a Redis without a free place "broken pipe (if it speaks TLS, write rediss://)", because the answer of Redis, "max number of clients reached", is lost to the write that it cut off.
Verdict: Mended: where the answer of Redis is lost, the error names both causes, TLS and `maxclients`. Who has connections goes on, who starts waits for a place where `store.required_at_start` is false, and afterwards no more connections are open than before.
"""

import contextlib
import os
import socket
import subprocess

from house import RAINCHECK, until
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    port = field.redis("--maxclients", "24")
    settings = '[store]\nnamespace = "n"\nrequired_at_start = false\n[tasks]\ngrace_window = "50ms"\n'
    store, call = f"redis://127.0.0.1:{port}", {"name": "slow", "arguments": {"s": 0.3}}
    first = field.raincheck("--upstream", server.url, store=store, config=settings)
    task = first.modern("tools/call", call).answer(7)["result"]["taskId"]
    assert first.finished(task)["result"]["status"] == "completed"
    others = []
    while True:
        other = socket.create_connection(("127.0.0.1", port), 5)
        others.append(other)
        other.sendall(b"PING\r\n")
        with contextlib.suppress(OSError):
            if b"max number" in other.recv(200):
                break
    # The one that has its connections goes on, and calls are answered in any case.
    for _ in range(6):
        answer = first.modern("tools/call", call).answer(7)
        assert "result" in answer, answer
    # What is wrong is said as Redis says it.
    command = [RAINCHECK, "check", "--upstream", server.url, "--store", store, "--namespace", "n"]
    env = {"PATH": os.environ["PATH"], "HOME": str(field.dir)}
    said = [subprocess.run(command, capture_output=True, text=True, env=env, timeout=20).stdout for _ in range(5)]
    # One that starts now waits for a place.
    second = field.raincheck("--upstream", server.url, store=store, config=settings + '[replica]\nid = "two"\n', ready=False)
    until("the store was tried", lambda: "the store is not there yet" in second.log() or second.child.poll() is not None)
    assert second.child.poll() is None, second.log()
    for other in others:
        other.close()
    for raincheck in (first, second):
        until("calls become tasks", lambda raincheck=raincheck: "taskId" in raincheck.modern("tools/call", call).answer(7).get("result", {}), 15)
    clients = subprocess.run(["redis-cli", "-p", str(port), "info", "clients"], capture_output=True, text=True, check=True).stdout
    misled = [line for text in said for line in text.splitlines() if "write rediss://" in line]
    connected = int(clients.partition("connected_clients:")[2].split()[0])
    assert connected < 20, clients
    assert not misled, misled
