"""Area: stdio programs
Source: openai/codex#26984
Met: Stdio servers used up the host's file descriptors, after which nothing could be started any more until the host itself was started anew.
First try: fail: five starts that the system refuses count as deaths of the program: /readyz says 503 `upstream_cannot_run` for a program that answers its other
    callers, and every further caller is refused for the growing pause, although idle processes could make room
Verdict: Mended: a start for which the system has no descriptor, no process or no memory fails its call alone. The program stays in service, and the next caller is served as soon as there is room.
"""

import os
import time

import house
from house import free_port, http, until
from servers import STDIO


def test(field):
    limited = field.write("limited", f"#!/bin/sh\nulimit -n 48\nexec '{house.RAINCHECK}' \"$@\"\n", 0o755)
    usual, house.RAINCHECK = house.RAINCHECK, limited
    probes = free_port()
    try:
        raincheck = field.raincheck("--", "python3", field.write("server.py", STDIO), config=f'[admin]\nprobes = "127.0.0.1:{probes}"\n')
    finally:
        house.RAINCHECK = usual
    until("it is ready", lambda: http(probes, "GET", path="/readyz").status == 200)
    sessions, refused = [], []
    for number in range(30):
        session = raincheck.session(name=f"c{number}")
        (sessions if "mcp-session-id" in session.headers else refused).append(session)
    assert sessions and "Too many open files" in raincheck.log(), "the report did not reach the limit"
    ready = http(probes, "GET", path="/readyz")
    # What runs goes on.
    assert sessions[0].call("slow")["result"]["content"][0]["text"] == "done"
    before = len(os.listdir(f"/proc/{raincheck.child.pid}/fd"))
    for session in sessions:
        raincheck.http("DELETE", headers=session.headers)
    until("descriptors are free", lambda: len(os.listdir(f"/proc/{raincheck.child.pid}/fd")) < before - 8)
    freed = time.monotonic()
    until("a new session is served", lambda: "mcp-session-id" in raincheck.session(name="after").headers, 45)
    waited = time.monotonic() - freed
    assert ready.status == 200, f"a program that answers is out of service: {ready.text}"
    assert waited < 5, f"after descriptors were free, new sessions were refused for {waited:.0f} s"
