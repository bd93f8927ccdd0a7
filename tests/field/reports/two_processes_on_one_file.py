"""Area: deployment
Source: project-zot/helm-charts#70
Met: An update started the new pod while the old one still held the file of the embedded database; the new one failed on its lock, with words that helped nobody.
First try: pass
Verdict: The second process ends with code 1 and says who has the file and what to do, the first one is not disturbed, also when the second one reaches the file by
    another path; when the first one has ended, cleanly or not, the next start has all its tasks.
"""

import os
import subprocess

import house
from house import free_port
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    store = field.dir / "tasks.redb"
    (field.dir / "link").symlink_to(field.dir)
    os.symlink(store, field.dir / "alias.redb")
    raincheck = field.raincheck("--upstream", server.url, store=f"redb:{store}")
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2.5}}).answer(7)["result"]["taskId"]
    for path in (store, field.dir / "link" / "tasks.redb", field.dir / "alias.redb", "tasks.redb", "./link/./tasks.redb"):
        options = ["run", "--listen", f"127.0.0.1:{free_port()}", "--store", f"redb:{path}", "--upstream", server.url]
        second = subprocess.run([house.RAINCHECK, *options], cwd=field.dir, capture_output=True, text=True, timeout=10, check=False)
        assert second.returncode == 1 and "in use by another raincheck" in second.stderr, (path, second.stderr)
    assert raincheck.finished(task)["result"]["status"] == "completed"
    later = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 2.5}}).answer(7)["result"]["taskId"]
    assert raincheck.finished(later)["result"]["status"] == "completed"
    raincheck.child.kill()
    raincheck.child.wait()
    raincheck = field.raincheck("--upstream", server.url, store=f"redb:{store}")
    for id in (task, later):
        assert raincheck.finished(id)["result"]["status"] == "completed"
