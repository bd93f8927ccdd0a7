"""Area: Redis
Source: redis/ioredis#1318
Met: After a network fault the client's connection to Redis stayed half open, commands on it waited for answers that never came, and the client did not connect again.
First try: fail: every command on the old connections timed out for as long as raincheck ran (100 s and more), although new connections to Redis worked.
Verdict: Mended: after three commands in a row without an answer their connection is replaced, at most once in ten seconds.
"""


from house import until
from servers import LegacyServer, Relay


class Balancer(Relay):
    """What it forgets is still read and acknowledged, but nothing of it arrives any more."""

    forgotten = range(0)

    def passes(self, line, data, target):
        if line not in self.forgotten:
            target.sendall(data)

    def ended(self, source, target):
        pass

    def forget(self):
        self.forgotten = range(1, self.lines + 1)


def test(field):
    server = LegacyServer()
    balancer = Balancer(field.redis())
    settings = '[store]\nnamespace = "swallow"\n[tasks]\ngrace_window = "100ms"\n'
    raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{balancer.port}", config=settings)
    call = {"name": "slow", "arguments": {"s": 0.3}}
    task = raincheck.modern("tools/call", call).answer(7)["result"]["taskId"]
    assert raincheck.finished(task)["result"]["status"] == "completed"
    balancer.forget()
    # A connection that answers nothing for seconds is given up, as one that was cut is.
    until("polls are answered over a new connection", lambda: raincheck.modern("tasks/get", {"taskId": task}).status == 200, 15)
    until("calls become tasks again", lambda: "taskId" in raincheck.modern("tools/call", call).answer(7).get("result", {}), 15)
