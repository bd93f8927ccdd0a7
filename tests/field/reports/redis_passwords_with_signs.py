"""Area: Redis
Source: celery/celery#1553
Met: A generated password had signs that mean something in a URL (/ + @ # % : ?), and it was cut off, taken for a host, or never decoded.
First try: pass
Verdict: Percent encoding is decoded once, for the user too; a URL that cannot be read is refused with the rule in the line, and the password is in no line of the log or of check (what `config show` says: secrets_that_are_shown).
"""

import os
import subprocess
import urllib.parse

from house import RAINCHECK
from servers import LegacyServer

PASSWORD = "Ro3x<16%3xHO54l]1;ilx$Ae6+lR@%+0TQ6c~19XDS/q1:AZ7?m#M é"


def test(field):
    server = LegacyServer()
    socket = str(field.dir / "redis.sock")
    port = field.redis("--unixsocket", socket)
    user = ["acl", "setuser", "us@er", "on", f">{PASSWORD}", "~*", "+@all"]
    subprocess.run(["redis-cli", "-p", str(port), *user], stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["redis-cli", "-p", str(port), "config", "set", "requirepass", PASSWORD], stdout=subprocess.DEVNULL, check=True)
    quoted = urllib.parse.quote(PASSWORD, safe="")
    settings = '[store]\nnamespace = "n"\n[tasks]\ngrace_window = "50ms"\n'
    urls = [f"redis://:{quoted}@127.0.0.1:{port}/5", f"redis://us%40er:{quoted}@localhost:{port}", f"redis://default:{quoted}@127.0.0.1:{port}/0"]
    urls.append(f"redis+unix://{socket}?db=5&pass={quoted}")
    for url in urls:
        raincheck = field.raincheck("--upstream", server.url, store=None, config=settings, env={"RAINCHECK_STORE__URL": url})
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(task)["result"]["status"] == "completed"
        assert PASSWORD not in raincheck.log() and quoted not in raincheck.log() and "Ro3x" not in raincheck.log()
        raincheck.child.terminate()
    # As it stands, and wrong: said in a line that shows nothing of it.
    for url in (f"redis://:{PASSWORD}@127.0.0.1:{port}", f"redis://:wrong{quoted}@127.0.0.1:{port}", f"rediss://:{quoted}@127.0.0.1:{port}"):
        env = {"PATH": os.environ["PATH"], "HOME": str(field.dir), "RAINCHECK_STORE__URL": url, "RAINCHECK_STORE__NAMESPACE": "n"}
        for command in (["check"], ["check", "--json"], ["run", "--listen", "127.0.0.1:0"]):
            done = subprocess.run([RAINCHECK, *command, "--upstream", server.url], capture_output=True, text=True, env=env, timeout=20)
            said = done.stdout + done.stderr
            assert done.returncode != 0, f"{command}: {said}"
            assert "Ro3x" not in said and "XDS" not in said and "AZ7" not in said, f"{command}: {said}"
