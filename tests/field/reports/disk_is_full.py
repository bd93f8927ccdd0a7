"""Area: deployment
Source: facebook/rocksdb#919
Met: After the disk had been full once, an embedded database refused every write until its process was started anew, long after there was room again.
First try: pass
Verdict: Without room, calls stay plain calls and are answered, finished tasks keep their results in memory, readiness says `store_full` and stays; with room again the same
    process makes tasks, and nothing that was promised is lost, also after a restart.
"""

import json
import os
import subprocess

from house import free_port, http, until
from servers import LegacyServer, content


class Server(LegacyServer):
    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return content("x" * 100_000)


def test(field):
    if os.getuid() != 0:
        return
    disk = field.dir / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True, check=False).returncode:
        return
    try:
        server = Server()
        probes = free_port()
        config = f'[tasks]\ngrace_window = "100ms"\n[drain]\ngrace = "5s"\n[admin]\nprobes = "127.0.0.1:{probes}"\n'
        start = lambda: field.raincheck("--upstream", server.url, store=f"redb:{disk}/tasks.redb", config=config)
        raincheck = start()
        call = lambda s=0.3: raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": s}}).answer(7)
        tasks = [call()["result"]["taskId"]]
        assert raincheck.finished(tasks[0])["result"]["status"] == "completed"
        # Somebody else fills the disk while a task runs.
        tasks.append(call(1.5)["result"]["taskId"])
        fill = disk / "fill"
        subprocess.run(["dd", "if=/dev/zero", f"of={fill}", "bs=4k"], capture_output=True, check=False)
        plain = 0
        for _ in range(12):
            result = call()["result"]
            plain += "content" in result
            if "taskId" in result:
                tasks.append(result["taskId"])
        assert plain, "the disk was not full"
        words = set()

        def told():
            ready = http(probes, "GET", path="/readyz")
            assert ready.status == 200, ready.text
            words.add(json.loads(ready.text)["degraded"])
            return "store_full" in words

        until("readiness says that the store is full", told, 12)
        assert words <= {None, "store_full"}, words
        assert "No space left" in raincheck.log()
        fill.unlink()
        for task in tasks:
            assert raincheck.finished(task)["result"]["status"] == "completed", task
        until("calls become tasks again", lambda: "taskId" in call()["result"], 15)
        raincheck.child.terminate()
        assert raincheck.child.wait(10) == 0
        raincheck = start()
        for task in tasks:
            assert raincheck.finished(task)["result"]["status"] == "completed", task
        raincheck.child.terminate()
        raincheck.child.wait(10)
    finally:
        for child in field.running:
            if child.poll() is None:
                child.kill()
                child.wait()
        subprocess.run(["umount", str(disk)], check=False)
