"""Area: deployment
Source: kubernetes/kubernetes#43576
Met: At each rolling update requests were lost: the load balancer still sent some to a pod that had stopped listening, kept connections were cut, and calls that ran ended.
First try: pass
Verdict: After SIGTERM readiness says so at once and everything is served on for `drain.delay`; then calls and tasks that run finish, connections that are open can still
    poll, a new call is refused as one that did not run, the process ends with code 0 as soon as nothing runs, and the next one on its store has the results.
"""

import http.client
import json
import signal
import threading
import time

import house
from house import free_port, until
from servers import STDIO, LegacyServer


class Kept:
    """A modern client on one connection."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(self, method, params, named):
        about = {"protocolVersion": house.MODERN, "clientInfo": {"name": "c", "version": "1"}, "clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}}}
        head = {"content-type": "application/json", "accept": "application/json, text/event-stream", "mcp-protocol-version": house.MODERN, "mcp-method": method, "mcp-name": named}
        self.connection.request("POST", "/mcp", json.dumps(body), head)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()


def test(field):
    server = LegacyServer()
    program = field.write("server.py", STDIO)
    for number, command in enumerate((["--upstream", server.url], ["--", "python3", program])):
        probes = free_port()
        config = f'[tasks]\npoll_hold = "0s"\n[drain]\ndelay = "2s"\ngrace = "15s"\n[admin]\nprobes = "127.0.0.1:{probes}"\n'
        store = f"redb:{field.dir}/tasks-{number}.redb"
        raincheck = field.raincheck(*command, config=config, store=store)
        until("it is ready", lambda probes=probes: house.http(probes, "GET", path="/readyz").status == 200)
        session, late = raincheck.session(), []
        running = threading.Thread(target=lambda session=session, late=late: late.append(session.ask("tools/call", {"name": "slow", "arguments": {"s": 5}}, 9)))
        running.start()
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 6}}).answer(7)["result"]["taskId"]
        kept = Kept(raincheck.port)
        assert '"working"' in kept.ask("tasks/get", {"taskId": task}, task)[1]
        raincheck.child.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        until("readiness says so", lambda probes=probes: house.http(probes, "GET", path="/readyz").status == 503, 1)
        assert house.http(probes, "GET", path="/livez").status == 200
        # As a load balancer that has not heard of it yet.
        while time.monotonic() - begin < 1.2:
            assert raincheck.session().call("slow")["result"]["content"]
            assert kept.ask("tasks/get", {"taskId": task}, task)[0] == 200
            time.sleep(0.2)
        time.sleep(max(0, begin + 2.6 - time.monotonic()))
        status, text = kept.ask("tools/call", {"name": "slow"}, "slow")
        assert '"io.raincheck/effect":"none"' in text.replace(" ", ""), (status, text)
        running.join()
        assert late[0].answer(9)["result"]["content"], late[0].text
        assert raincheck.child.wait(8) == 0
        assert time.monotonic() - begin < 9, "it waited although nothing ran"
        raincheck = field.raincheck(*command, config=config, store=store)
        ended = raincheck.finished(task)["result"]
        assert ended["status"] == "completed", ended
