"""Area: Redis
Source: StackExchange/StackExchange.Redis#2264
Met: After a failover the name led to another server, but the open connections went to the old primary, which answered READONLY to every write until the application was started again.
First try: pass
Verdict: READONLY makes raincheck resolve the name and connect anew; a task that ran through the failover ends, and its result is shown.
"""

import subprocess

from house import until
from servers import LegacyServer, Relay


class Name(Relay):
    """An address that leads to the primary of now, as a name of DNS."""


def test(field):
    server = LegacyServer()
    old, new = field.redis(), field.redis()

    def redis(port, *words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=True).stdout

    redis(new, "replicaof", "127.0.0.1", str(old))
    until("the replica follows", lambda: "master_link_status:up" in redis(new, "info", "replication"))
    name = Name(old)
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{name.port}", config=settings)
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2}}).answer(7)["result"]["taskId"]
    until("the replica has the task", lambda: task in redis(new, "keys", "*"))
    redis(new, "replicaof", "no", "one")
    name.to = new
    redis(old, "replicaof", "127.0.0.1", str(new))
    assert raincheck.finished(task)["result"]["status"] == "completed"
    call = {"name": "slow", "arguments": {"s": 0.3}}
    until("calls become tasks again", lambda: "taskId" in raincheck.modern("tools/call", call).answer(7).get("result", {}), 10)
    assert "role:master" in redis(new, "info", "replication")
