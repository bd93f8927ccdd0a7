"""Area: Redis
Source: redisson/redisson#3897
Met: After a failover of a rented Redis, scripts got READONLY from the old primary, but before Redis 7 it stands in the middle of an ERR of the script, so the client did not look for the new primary.
First try: fail: with Redis 6.2 (the oldest that the documents promise), and with its errors as here, raincheck stays on the old primary for ever: no call becomes a task, ends are never written, and polls say working, although the name leads to the new one.
Verdict: Mended: the code that the text has is looked for, too, and the primary is searched.
"""

import re
import subprocess

from house import until
from servers import LegacyServer, Relay


IN_A_SCRIPT = re.compile(rb"-([A-Z]+) ([^\r\n]*?) script: (\w+), on @user_script:(\d+)\.")


class Name(Relay):
    """An address that leads to the primary of now, as a name of DNS. Errors of scripts have the form that they had until Redis 6.2."""

    def passes(self, line, data, target):
        old = rb"-ERR Error running script (call to f_\3): @user_script:\4: @user_script: \4: -\1 \2 "
        target.sendall(IN_A_SCRIPT.sub(old, data))


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
