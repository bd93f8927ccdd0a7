"""Area: Redis
Source: taskforcesh/bullmq#3760
Met: Scripts used keys that they had not declared, which Redis lets pass, and Dragonfly and clusters refuse.
First try: fail: the scripts of tasks declare every key, but the start's look for the user's rights runs all its commands on an undeclared key; a server that ends such a script has raincheck end.
Verdict: Mended with `redis_proxy_that_routes_by_key`.
"""

import contextlib
import socket
import threading

from house import until
from servers import LegacyServer

NO_KEY = {"time"}


def words(line):
    """The words of a line of MONITOR."""
    found, at = [], 0
    while (begin := line.find('"', at)) >= 0:
        at = begin + 1
        while line[at] != '"':
            at += 2 if line[at] == "\\" else 1
        found.append(line[begin + 1 : at])
        at += 1
    return found


def test(field):
    server = LegacyServer()
    port = field.redis()
    lines = []
    monitor = socket.create_connection(("127.0.0.1", port))
    monitor.sendall(b"MONITOR\r\n")

    def read():
        with contextlib.suppress(OSError), monitor.makefile("r", errors="replace") as text:
            lines.extend(iter(text.readline, ""))

    threading.Thread(target=read, daemon=True).start()
    until("Redis tells", lambda: lines)
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{port}", config=settings)
    session = raincheck.session()
    assert session.call("slow")["result"]["content"]
    for seconds in (0.3, 30):
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": seconds}}).answer(7)["result"]["taskId"]
        if seconds == 30:
            raincheck.modern("tasks/cancel", {"taskId": task})
        raincheck.finished(task)
    declared, foreign, scripts = set(), set(), 0
    for line in list(lines):
        said = words(line)
        if not said:
            continue
        command = said[0].lower()
        if " lua]" in line.split('"')[0]:
            keys = set() if command in NO_KEY else {said[2 if command == "xread" else 1]}
            foreign |= {f"{command} {key}" for key in keys - declared}
        elif command in ("eval", "evalsha"):
            scripts += 1
            declared = set(said[3 : 3 + int(said[2])])
    assert scripts > 5
    assert not foreign, f"undeclared keys: {sorted(foreign)}"
