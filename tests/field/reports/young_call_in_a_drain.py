"""Area: deployment
Source: istio/istio#15704
Met: A gateway did not drain at SIGTERM, so each update of it ended requests of clients that were under way.
First try: fail: a call of a legacy session that began less than two seconds before SIGTERM fails with `shutdown`, effect `unknown`, as soon as it is two seconds old, and
    the process ends with it, although drain.grace is 25 s; so does one over a program when it is one second old. Beside another call, or older than that, it is waited for
Verdict: Mended: a drain waits until calls that pass have become calls that it waits for.
"""

import signal
import threading
import time

from house import until
from servers import STDIO, LegacyServer, ModernServer


def test(field):
    faults = []
    program = field.write("server.py", STDIO)
    for name in ["legacy server", "modern server", "program"]:
        for version in ["2025-11-25", "2025-06-18", "modern"]:
            server = {"legacy server": LegacyServer, "modern server": ModernServer}.get(name, lambda: None)()
            raincheck = field.raincheck(*(["--upstream", server.url] if server else ["--", "python3", program]))
            call = {"name": "slow", "arguments": {"s": 3.2}}
            session = None if version == "modern" else raincheck.session(version)
            late = []

            def ask(raincheck=raincheck, session=session, late=late, call=call):
                late.append(raincheck.modern("tools/call", call, tasks=False) if session is None else session.ask("tools/call", call, 7))

            running = threading.Thread(target=ask)
            running.start()
            if server:
                until("the call is at the server", lambda server=server: server.runs == 1)
            else:
                time.sleep(0.4)
            begin = time.monotonic()
            raincheck.child.send_signal(signal.SIGTERM)
            running.join()
            if "error" in late[0].answer(7):
                faults.append(f"a call of {version} to a {name}, after {time.monotonic() - begin:.1f} s: {late[0].answer(7)['error']['data']}")
            assert raincheck.child.wait(10) == 0
    assert not faults, "\n".join(faults)
