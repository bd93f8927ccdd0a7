"""Area: deployment
Source: NCCloud/fluid#22
Met: The readiness probe said yes as soon as the process ran, although what it stands in front of was still loading, and clients got 503 for that time.
First try: pass
Verdict: Not ready until the server has answered once, over HTTP as for a program, while the process counts as live; a server that goes later is `degraded` and does
    not take the pod out of service.
"""

import threading
import time

from house import answers, free_port, http, until
from servers import STDIO, LegacyServer


def test(field):
    port, probes = free_port(), free_port()
    config = f'[admin]\nprobes = "127.0.0.1:{probes}"\n'
    field.raincheck("--upstream", f"http://127.0.0.1:{port}/mcp", config=config)
    # raincheck takes requests a moment before it answers probes.
    until("probes are answered", lambda: answers(probes))
    until("only the server is missing", lambda: '"missing":["upstream"]' in http(probes, "GET", path="/readyz").text.replace(" ", ""), 5)
    for _ in range(5):
        ready = http(probes, "GET", path="/readyz")
        assert ready.status == 503 and '"missing":["upstream"]' in ready.text.replace(" ", ""), ready.text
        assert http(probes, "GET", path="/livez").status == 200
        time.sleep(0.2)
    server = LegacyServer("127.0.0.1", port)
    until("it is ready", lambda: http(probes, "GET", path="/readyz").status == 200, 10)
    server.close()

    probes = free_port()
    slow = field.write("slow.py", "import time\ntime.sleep(3)\n" + STDIO)
    begin = time.monotonic()
    field.raincheck("--", "python3", slow, config=f'[admin]\nprobes = "127.0.0.1:{probes}"\n')
    until("probes are answered", lambda: answers(probes))
    assert http(probes, "GET", path="/readyz").status == 503
    until("it is ready", lambda: http(probes, "GET", path="/readyz").status == 200, 15)
    assert time.monotonic() - begin >= 3

    # A program that dies again and again is never ready, and one that is mended then is.
    probes = free_port()
    broken = field.write("broken.py", "import os, sys\nif not os.path.exists('mended'): sys.exit('no database')\n" + STDIO)
    raincheck = field.raincheck("--", "python3", broken, config=f'[admin]\nprobes = "127.0.0.1:{probes}"\n')
    threads = [threading.Thread(target=raincheck.session) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    assert http(probes, "GET", path="/readyz").status == 503
    for thread in threads:
        thread.join()
    field.write("mended", "")
    until("it is ready", lambda: http(probes, "GET", path="/readyz").status == 200, 20)
    assert raincheck.session().call("slow")["result"]["content"]
