"""Area: stdio programs
Source: codefuturist/email-mcp#60
Met: Closing a terminal window left the server behind its npm wrapper running for days, hundreds of them, because only the processes of the terminal got the signal.
First try: fail: SIGHUP ends `raincheck stdio` at once by the signal, without its clean-up: the wrapper is killed, and the server that the wrapper started runs on
Verdict: Mended: SIGHUP ends `raincheck stdio` as SIGTERM does, with the processes of its server.
"""

import contextlib
import os
import signal

from house import until
from servers import STDIO

# As servers of the SDK with a timer do, it stays when its input ends.
SERVER = "import os\nopen('pids', 'a').write(f'{os.getpid()}\\n')\n" + STDIO + "\nwhile True: time.sleep(1)\n"


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test(field):
    server = field.write("server.py", SERVER)
    wrapper = field.write("npx", f"#!/bin/sh\npython3 '{server}'\necho done >&2\n", 0o755)
    left = {}
    for name in ["SIGTERM", "SIGINT", "SIGHUP"]:
        pids = field.dir / "pids"
        pids.write_text("")
        pipe = field.stdio("--", wrapper)
        pipe.hello()
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
        pipe.answer(1)
        started = [int(pid) for pid in pids.read_text().split()]
        assert started
        pipe.child.send_signal(getattr(signal, name))
        pipe.child.wait(15)
        with contextlib.suppress(AssertionError):
            until("nothing is left", lambda: not any(map(alive, started)), 3)
        left[name] = [pid for pid in started if alive(pid)]
        for pid in left[name]:
            os.kill(pid, signal.SIGKILL)
    assert not any(left.values()), f"processes that were left: {left}"
