"""Area: stdio programs
Source: modelcontextprotocol/typescript-sdk#547
Met: After the client had closed its side, containers and programs ran on, because they notice neither the end of their input nor a signal, and the host did not end.
First try: pass
Verdict: Standard input is closed, then the group gets SIGTERM, then SIGKILL: raincheck ends in time with code 0, and the program, its wrapper and what they started are gone.
    The end of a session ends its program alone.
"""

import os
import signal
import time

from house import until
from servers import STDIO

STUBBORN = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
helper = subprocess.Popen(["sleep", "300"], stdin=subprocess.DEVNULL)
open("pids", "a").write(f"{os.getpid()} {helper.pid}\\n")
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test(field):
    program = field.write("stubborn.py", STUBBORN + STDIO + "\nwhile True: time.sleep(1)\n")
    wrapper = field.write("launch.sh", f"#!/bin/sh\ntrap '' TERM INT\npython3 '{program}'\n", 0o755)
    pids = field.dir / "pids"
    started = lambda: [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
    try:
        raincheck = field.raincheck("--", wrapper)
        first, second = raincheck.session(), raincheck.session()
        first.call("slow")
        mine = started()
        second.call("slow")
        assert raincheck.http("DELETE", headers=first.headers).status == 200
        until("one program ends with its session", lambda: any(not alive(pid) for pid in started()), 10)
        assert second.call("slow", id=2)["result"]["content"][0]["text"] == "done", mine
        begin = time.monotonic()
        raincheck.child.send_signal(signal.SIGTERM)
        assert raincheck.child.wait(15) == 0
        assert time.monotonic() - begin < 8
        until("nothing is left", lambda: not any(map(alive, started())), 3)

        pipe = field.stdio("--", wrapper)
        pipe.hello()
        pipe.child.stdin.close()
        assert pipe.child.wait(15) == 0
        until("nothing is left", lambda: not any(map(alive, started())), 3)
    finally:
        for pid in started():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
