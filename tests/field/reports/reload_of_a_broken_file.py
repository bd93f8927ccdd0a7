"""Area: deployment
Source: cloudamqp/lavinmq#2080
Met: `systemctl reload` after a typo in the settings ended a healthy process that was serving, with everything that ran on it.
First try: pass
Verdict: All or nothing: whatever is wrong with the file, what runs goes on under the old settings, the log names the mistake, and the next good file applies.
"""

import signal
import threading

from house import until
from servers import LegacyServer

GOOD = '[tasks]\nmode = "{}"\n'


def test(field):
    server = LegacyServer()
    path = field.dir / "raincheck.toml"
    path.write_text(GOOD.format("never"))
    raincheck = field.raincheck("--upstream", server.url, "--config", str(path))
    session, late = raincheck.session(), []
    thread = threading.Thread(target=lambda: late.append(session.call("slow", {"s": 5})))
    thread.start()
    until("the call is at the server", lambda: server.runs == 1)
    unreadable = {
        "half": b'[tasks]\nmode = "alw', "typo": b'[tasks]\nmoode = "always"\n', "value": b'[tasks]\nmode = "sometimes"\n', "empty name": b'[[tools]]\nname = ""\nmode = "always"\n',
        "binary": b"\x00\xff\xfe", "conflict": b'<<<<<<< HEAD\n[tasks]\n', "gone": None, "folder": b"",
    }
    for name, text in unreadable.items():
        path.unlink() if path.is_file() else None
        if name == "folder":
            path.mkdir()
        elif text is not None:
            path.write_bytes(text)
        seen = raincheck.log().count("raincheck.toml")
        raincheck.child.send_signal(signal.SIGHUP)
        until(f"{name}: the log names the file", lambda seen=seen: raincheck.log().count("raincheck.toml") > seen, 5)
        assert raincheck.child.poll() is None, name
        assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"], name
    path.rmdir()
    path.write_text(GOOD.format("always"))
    for _ in range(5):
        raincheck.child.send_signal(signal.SIGHUP)
    until("the good file applies", lambda: "taskId" in raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"])
    thread.join()
    assert late[0]["result"]["content"][0]["text"].startswith("run ")
