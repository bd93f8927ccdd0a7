"""Area: Redis
Source: redisson/redisson#6666
Met: A hardened Redis had commands such as PEXPIRE renamed away, as widely copied lists of dangerous commands say, and scripts of a client failed in the middle.
First try: fail: `raincheck check` said ok of a Redis without PEXPIRE, TIME, XADD or EVALSHA, and the start then ended with "Unknown Redis command called from script" (without XADD or XREAD it did not even end), without the name of the command.
Verdict: Mended: the start and `check` name commands that the server does not know, as those that the user may not run.
"""

import json
import os
import subprocess

from house import RAINCHECK
from servers import LegacyServer


def test(field):
    server = LegacyServer()
    # The lists of dangerous commands that are copied most have the first two, with DEL, KEYS and CONFIG.
    for name, others in (("PEXPIRE", ["DEL", "KEYS", "CONFIG"]), ("SREM", []), ("EVALSHA", []), ("XADD", []), ("XREAD", [])):
        renamed = [word for command in (name, *others) for word in ("--rename-command", command, "")]
        port = field.redis(*renamed)
        command = [RAINCHECK, "check", "--json", "--upstream", server.url, "--store", f"redis://127.0.0.1:{port}", "--namespace", "n"]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": str(field.dir)}, timeout=20)
        said = json.dumps(json.loads(done.stdout)) + done.stderr
        assert done.returncode == 1 and name.lower() in said.lower(), f"without {name}, check ends with {done.returncode} and does not say so"
