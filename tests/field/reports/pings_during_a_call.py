"""Area: clients
Source: NousResearch/hermes-agent#101025
Met: A host pinged its server every few seconds; where the answer was missing or waited behind a long call, it took the connection for dead, and killed and started the server again.
First try: pass
Verdict: A ping on a session is answered at once while calls run there, in front of servers over HTTP and of programs that read on; a modern server is never asked, as its
    revision has no ping.
"""

import concurrent.futures
import time

from servers import STDIO, LegacyServer, ModernServer

THREADS = STDIO.replace("import json, sys, time", "import json, sys, time, threading").replace(
    '        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})',
    '        threading.Thread(target=lambda m=message: say({"jsonrpc": "2.0", "id": m["id"], "result": result(m)})).start()',
)


def test(field):
    program = field.write("server.py", THREADS)
    modern = ModernServer()
    for upstream in (["--upstream", LegacyServer().url], ["--upstream", modern.url], ["--", "python3", program]):
        session, pipe = field.raincheck(*upstream).session(), field.stdio(*upstream)
        pipe.hello()
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {"s": 4}}})
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(session.call, "slow", {"s": 4})
            for n in range(15):
                begun = time.monotonic()
                assert session.ask("ping", id=100 + n).answer(100 + n)["result"] == {}
                pipe.say({"jsonrpc": "2.0", "id": 100 + n, "method": "ping"})
                assert pipe.answer(100 + n)["result"] == {}
                assert time.monotonic() - begun < 2, time.monotonic() - begun
                time.sleep(0.2)
            assert call.result()["result"]["content"]
        assert pipe.answer(1)["result"]["content"]
    assert not [method for method, *_ in modern.seen if method == "ping"]
