"""Area: deployment
Source: mozilla/fxa-auth-server#2226
Met: Requests that came before the connection to Redis was ready failed, although the service itself was up.
First try: fail: with `required_at_start = false`, a call of a legacy session that is under way and younger than two seconds when Redis answers for the first time ends with
    `shutdown` when it is two seconds old, or with `upstream_reset` because its program is stopped; the documents promise that such calls run to their end
Verdict: Mended with `young_call_in_a_drain`: it is the same wait.
"""

import threading

from house import free_port, until
from servers import STDIO, LegacyServer


def test(field):
    program = field.write("server.py", STDIO)
    server = LegacyServer()
    faults = []
    for name, command in {"url": ["--upstream", server.url], "program": ["--", "python3", program]}.items():
        port = free_port()
        config = f'[store]\nrequired_at_start = false\nnamespace = "{name}"\n'
        raincheck = field.raincheck(*command, config=config, store=f"redis://127.0.0.1:{port}")
        asked = {}
        sessions = {"2025-11-25": raincheck.session(), "2025-06-18": raincheck.session("2025-06-18")}
        threads = []
        for version, session in sessions.items():
            call = {"name": "slow", "arguments": {"s": 6}}
            threads.append(threading.Thread(target=lambda version=version, session=session, call=call, asked=asked: asked.update({version: session.ask("tools/call", call, 9)})))
        # No other call runs: one would keep the others alive.
        for thread in threads:
            thread.start()
        field.redis("--maxmemory-policy", "noeviction", port=port)
        until("the store is there", lambda raincheck=raincheck: "the store is there" in raincheck.log())
        for thread in threads:
            thread.join()
        for version, answer in asked.items():
            if "error" in answer.answer(9):
                faults.append(f"{name}, {version}: {answer.answer(9)['error']['data']}")
        # And then calls become tasks.
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2.5}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(task)["result"]["status"] == "completed"
        assert raincheck.session().call("slow")["result"]["content"]
    assert not faults, "\n".join(faults)
