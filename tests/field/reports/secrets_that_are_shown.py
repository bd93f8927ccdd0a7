"""Area: security
Source: redisson/redisson#7032
Met: The URL of a store or a server was written into logs, errors and dumps of the configuration with the password in it.
First try: fail: `raincheck config show` (and GET /config) cuts the URL at the first "?" before it looks for the password, so the part before a "?" of a password that is not encoded is shown: `redis://:hunter?2@host` as `redis://:hunter?[secret]`. The log and `check` hide all of it.
Verdict: Mended: the query of a Redis URL begins behind its password.
"""

import json
import os
import subprocess

from house import RAINCHECK, free_port, http, until
from servers import LegacyServer

PARTS = ["hunter", "seven", "eleven"]


def test(field):
    server = LegacyServer()
    shown = []
    urls = ["redis://:hunter/seven@127.0.0.1:1/0", "redis://u:hunter#seven@127.0.0.1:1", "redis://u:hunter@seven@127.0.0.1:1", "redis://hunter@127.0.0.1:1"]
    urls += ["redis+unix:///run/none.sock?db=1&pass=hunter&user=seven", "redis-sentinel://u:hunter/seven@127.0.0.1:1/main?sentinel_password=eleven"]
    urls += ["redis-cluster://u:hunter,seven@127.0.0.1:1", "redis://:hunter?seven@127.0.0.1:1", "redis://:hunter?seven%@eleven?@127.0.0.1:1/0"]
    for url in urls:
        env = {"PATH": os.environ["PATH"], "HOME": str(field.dir), "RAINCHECK_STORE__URL": url, "RAINCHECK_STORE__NAMESPACE": "n"}
        for command in (["config", "show"], ["check"], ["check", "--json"], ["run", "--listen", "127.0.0.1:0"], ["stdio"]):
            done = subprocess.run([RAINCHECK, *command, "--upstream", server.url], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, timeout=20)
            shown += [(url, " ".join(command), part) for part in PARTS if part in done.stdout + done.stderr]
    # What a running raincheck shows of the server's address and headers.
    port = free_port()
    upstream = f'[upstream]\nurl = "{server.url}?api_key=hunter"\n[upstream.headers]\nx-api-key = "seven"\nauthorization = "Bearer eleven"\n'
    admin = f'[admin]\nlisten = "127.0.0.1:{port}"\n[store]\nseal_key = "{"ab" * 32}"\n[tasks]\ngrace_window = "50ms"\n'
    raincheck = field.raincheck(config=upstream + admin, env={"RAINCHECK_LOG": "debug"})
    assert raincheck.session().call("slow")["result"]["content"]
    assert any(headers.get("x-api-key") == "seven" for _, _, headers in server.seen)
    task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
    raincheck.finished(task)
    for path in ("/config", "/tasks", f"/tasks/{task}", "/metrics", "/readyz"):
        answer = until(f"{path} is answered", lambda path=path: http(port, "GET", path=path))
        shown += [(path, json.dumps(answer.text[:80]), part) for part in [*PARTS, "abab"] if part in answer.text]
    shown += [("log", part) for part in [*PARTS, "abab"] if part in raincheck.log()]
    assert not shown, "\n".join(map(str, shown))
