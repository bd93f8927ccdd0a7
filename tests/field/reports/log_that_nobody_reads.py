"""Area: deployment
Source: librefang/librefang#3805
Met: What collects the log stopped reading it, the pipe of standard error filled up, and writers of log lines held up every request; elsewhere a closed pipe ended them.
First try: pass
Verdict: Calls go on while nobody reads the log, also with a program that floods its standard error, and while its reader is gone or there was never a standard stream;
    the log goes on when it is read again.
"""

import fcntl
import os
import signal
import subprocess

import house
from house import free_port, until
from servers import STDIO

FLOOD = 'import sys\nfor number in range(20_000): sys.stderr.write("line %d of a log that nobody reads\\n" % number)\n'


def started(field, program, port, **how):
    words = [house.RAINCHECK, "run", "--listen", f"127.0.0.1:{port}", "--store", "memory:", "--log", "debug", "--", "python3", program]
    child = subprocess.Popen(words, env={"PATH": os.environ["PATH"], "HOME": str(field.dir), "RAINCHECK_TELEMETRY__ACCESS_LOG": "true"}, **how)
    field.running.append(child)
    return house.Raincheck(child, "127.0.0.1", port, field.dir / "none", True)


def test(field):
    program = field.write("server.py", STDIO.replace("    message = json.loads(line)\n", "    message = json.loads(line)\n    " + FLOOD.replace("\n", "\n    ").strip() + "\n"))

    def works(raincheck):
        for id in range(40):
            session = raincheck.session()
            assert session.call("slow", id=id)["result"]["content"]
            raincheck.http("DELETE", headers=session.headers)
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2.5}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(task)["result"]["status"] == "completed"

    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    full = started(field, program, free_port(), stderr=write)
    os.close(write)
    works(full)
    os.set_blocking(read, False)
    seen = b""

    def more():
        nonlocal seen
        try:
            seen += os.read(read, 1 << 20)
        except BlockingIOError:
            pass
        return b"nothing has changed" in seen

    full.child.send_signal(signal.SIGHUP)
    until("the log goes on when it is read again", more, 10)
    # Now the reader goes.
    os.close(read)
    assert full.session().call("slow")["result"]["content"]
    full.child.send_signal(signal.SIGTERM)
    assert full.child.wait(10) == 0

    closed = started(field, program, free_port(), preexec_fn=lambda: os.closerange(0, 3))
    assert closed.session().call("slow")["result"]["content"]
    closed.child.send_signal(signal.SIGTERM)
    assert closed.child.wait(10) == 0
    with open("/dev/full", "wb") as nowhere:
        device = started(field, program, free_port(), stderr=nowhere)
    assert device.session().call("slow")["result"]["content"]
