"""Area: clients
Source: cursor/cursor#3609
Met: A user ended the session while a tool ran; the server never heard of it, and the tool ran on in the background.
First try: pass
Verdict: The DELETE is answered at once, calls that run on the session end or go on as the server decides, no process of the session is left, and the session is gone (404);
    a session that knows nothing is told so.
"""

import concurrent.futures
import time

from house import until
from servers import STDIO, LegacyServer, ModernServer

MARKED = STDIO.replace("for line in sys.stdin:", "open(sys.argv[1] + str(__import__('os').getpid()), 'w').close()\nfor line in sys.stdin:")


def test(field):
    program = field.write("server.py", MARKED)
    for server in (LegacyServer(), ModernServer(), None):
        raincheck = field.raincheck(*(["--upstream", server.url] if server else ["--", "python3", program, str(field.dir / "pid-")]))
        session = raincheck.session()
        session.call("slow")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(session.ask, "tools/call", {"name": "slow", "arguments": {"s": 3, "n": n}}, n) for n in (1, 2)]
            time.sleep(0.7)
            begun = time.monotonic()
            assert raincheck.http("DELETE", None, session.headers).status in (200, 202, 204)
            assert time.monotonic() - begun < 1
            for call in calls:
                assert call.result().status in (200, 404)
        if server:
            if isinstance(server, LegacyServer) and not isinstance(server, ModernServer):
                assert [headers["mcp-session-id"] for method, _, headers in server.seen if method == "DELETE"] == [session.headers["mcp-session-id"]]
                continue
        else:
            pids = [int(path.name[4:]) for path in field.dir.glob("pid-*")]
            until("the process of the session is gone", lambda: not any(alive(pid) for pid in pids), 10)
        assert session.ask("tools/list").status == 404
        assert raincheck.http("DELETE", None, session.headers).status == 404
        assert raincheck.session().call("slow")["result"]["content"]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
