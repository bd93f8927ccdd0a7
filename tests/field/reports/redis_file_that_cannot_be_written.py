"""Area: Redis
Source: OptimalBits/bull#540
Met: Redis could not write its snapshot (a full disk) and refused every write with MISCONF; queues stood still or ended.
First try: pass
Verdict: raincheck names the refusal once, goes on as in an outage (results are shown, calls stay plain calls), and makes tasks again by itself.
"""

import subprocess

from house import until
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    port = field.redis("--enable-protected-configs", "yes")

    def redis(*words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=True).stdout

    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck("--upstream", server.url, store=f"redis://127.0.0.1:{port}", config=settings)
    call = {"name": "slow", "arguments": {"s": 0.3}}
    task = raincheck.modern("tools/call", call).answer(7)["result"]["taskId"]
    assert raincheck.finished(task)["result"]["status"] == "completed"
    # A snapshot into a folder that is gone fails for root, too.
    gone = field.dir / "gone"
    gone.mkdir()
    redis("config", "set", "dir", str(gone))
    gone.rmdir()
    redis("config", "set", "save", "3600 1")
    redis("bgsave")
    until("the snapshot failed", lambda: "rdb_last_bgsave_status:err" in redis("info", "persistence"))
    assert "MISCONF" in redis("set", "x", "1")
    assert raincheck.modern("tasks/get", {"taskId": task}).answer(7)["result"]["status"] == "completed"
    assert "content" in raincheck.modern("tools/call", call).answer(7)["result"]
    assert raincheck.session().call("slow")["result"]["content"]
    until("the refusal is told", lambda: "MISCONF" in raincheck.log())
    redis("config", "set", "save", "")
    until("calls become tasks again", lambda: "taskId" in raincheck.modern("tools/call", call).answer(7).get("result", {}), 10)
    assert server.runs >= 4 and raincheck.child.poll() is None
