"""Area: Redis
Source: redis/node-redis#641
Met: Redis reached its maxmemory, and processes that met the refusal ended; the orchestrator started them again, and each start met it again.
First try: fail: a raincheck that is started again in front of its own namespace while Redis is full ends with "cannot be reached or refuses us: OOM", because it writes the facts of the namespace (HSETNX) before it looks whether they stand there; the results that Redis holds can be read by nobody.
Verdict: Mended: what the namespace has is read before anything is written.
"""

import subprocess

from servers import LegacyServer


def test(field):
    server = LegacyServer()
    port = field.redis()
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    store = f"redis://127.0.0.1:{port}"
    first = field.raincheck("--upstream", server.url, store=store, config=settings)
    task = first.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]["taskId"]
    assert first.finished(task)["result"]["status"] == "completed"
    subprocess.run(["redis-cli", "-p", str(port), "config", "set", "maxmemory", "100kb"], stdout=subprocess.DEVNULL, check=True)
    # The replica that was there all the time still shows results, and calls stay plain calls.
    assert first.modern("tasks/get", {"taskId": task}).answer(7)["result"]["status"] == "completed"
    assert "content" in first.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]
    first.child.terminate()
    first.child.wait(10)
    # So does its successor: all that it needs to know stands in Redis.
    second = field.raincheck("--upstream", server.url, store=store, config=settings)
    assert second.modern("tasks/get", {"taskId": task}).answer(7)["result"]["status"] == "completed"
    assert "content" in second.modern("tools/call", {"name": "slow", "arguments": {"s": 0.3}}).answer(7)["result"]
