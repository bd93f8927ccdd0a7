"""Area: Redis
Source: taskforcesh/bullmq#265
Met: Redis was busy with somebody's script for some seconds, and workers that met the refusal ended or never recovered, although it was over soon. The same with too few replicas after a failover, and a full memory.
First try: fail: with `store.required_at_start = false` raincheck ends at once with code 1 when Redis answers BUSY, NOREPLICAS or OOM, as if its password were wrong; LOADING and a replica it waits for. A running raincheck waits for all of them.
Verdict: Mended: BUSY, NOREPLICAS, OOM, MISCONF and too many clients are waited for, too.
"""

import contextlib
import subprocess

from house import until
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    settings = '[store]\nnamespace = "n"\nrequired_at_start = false\n[tasks]\ngrace_window = "50ms"\n'
    call = {"name": "slow", "arguments": {"s": 0.3}}
    ended = []
    for refusal in ("NOREPLICAS", "BUSY", "OOM", "replica"):
        port = field.redis("--lua-time-limit", "50")

        def redis(*words, port=port):
            return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, timeout=10).stdout

        match refusal:
            case "NOREPLICAS":
                redis("config", "set", "min-replicas-to-write", "1")
            case "BUSY":
                field.start("redis-cli", "-p", str(port), "eval", "while true do end", "0", stdout=subprocess.DEVNULL)
                until("Redis is busy", lambda redis=redis: "BUSY" in redis("ping"))
            case "OOM":
                redis("config", "set", "maxmemory", "100kb")
            case "replica":
                redis("replicaof", "127.0.0.1", "1")
        raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{port}", config=settings, ready=False)
        tried = ("the store is not there yet", "raincheck:")
        until("the store was tried", lambda: any(word in raincheck.log() for word in tried) or raincheck.child.poll() is not None)
        match refusal:
            case "NOREPLICAS":
                redis("config", "set", "min-replicas-to-write", "0")
            case "BUSY":
                redis("script", "kill")
            case "OOM":
                redis("config", "set", "maxmemory", "0")
            case "replica":
                redis("replicaof", "no", "one")

        def works(raincheck=raincheck):
            if raincheck.child.poll() is not None:
                return True
            with contextlib.suppress(OSError, AssertionError):
                return "taskId" in raincheck.modern("tools/call", call).answer(7).get("result", {})
            return False

        until(f"calls become tasks after {refusal}", works, 15)
        if raincheck.child.poll() is not None:
            ended.append((refusal, raincheck.log().strip().splitlines()[-1]))
    assert not ended, ended
