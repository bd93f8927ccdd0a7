"""Area: deployment
Source: kumahq/kuma#4134
Met: Server and sidecar of a pod got SIGTERM at the same moment, and calls that ran were cut because one of both was gone before the other had finished.
First try: fail: the hook was answered after 2 s, and the call of a legacy session, which takes 3 s, failed with `shutdown` at that moment, although drain.grace is 12 s:
    see young_call_in_a_drain
Verdict: Mended: a drain waits until calls that pass have become calls that it waits for.
"""

import signal
import threading
import time

from house import free_port, http, until
from servers import LegacyServer

TOKEN = "0123456789abcdef0123456789abcdef"


def test(field):
    server = LegacyServer()
    probes = free_port()
    raincheck = field.raincheck("--upstream", server.url, config='[drain]\ngrace = "12s"\n', env={"RAINCHECK_DRAIN__TOKEN": TOKEN, "RAINCHECK_ADMIN__PROBES": f"127.0.0.1:{probes}"})
    until("it is ready", lambda: http(probes, "GET", path="/readyz").status == 200)
    for wrong in ("/drain", "/drain/", "/drain/wrong", f"/drain/{TOKEN[:-1]}", f"/drain/{TOKEN}x", f"/drain/?{TOKEN}"):
        assert http(probes, "GET", path=wrong).status in (401, 403, 404), wrong
    assert http(probes, "GET", path="/readyz").status == 200
    session, late = raincheck.session(), []
    running = threading.Thread(target=lambda: late.append(session.ask("tools/call", {"name": "slow", "arguments": {"s": 3}}, 9)))
    begin = time.monotonic()
    running.start()
    until("the call runs", lambda: server.runs == 1)
    hooks = []
    others = [threading.Thread(target=lambda: hooks.append(http(probes, "GET", path=f"/drain/{TOKEN}"))) for _ in range(2)]
    for hook in others:
        hook.start()
    until("readiness says so", lambda: http(probes, "GET", path="/readyz").status == 503, 2)
    for hook in others:
        hook.join()
    assert time.monotonic() - begin >= 2.9, "the hook was answered while the call ran"
    assert [hook.text.replace(" ", "") for hook in hooks] == ['{"drained":true}'] * 2, [hook.text for hook in hooks]
    running.join()
    assert late[0].answer(9)["result"]["content"][0]["text"] == "run 1"
    # Now the kubelet stops the server, and then the sidecar.
    server.close()
    assert raincheck.child.poll() is None
    raincheck.child.send_signal(signal.SIGTERM)
    assert raincheck.child.wait(5) == 0
    assert TOKEN not in raincheck.log()
