"""Area: deployment
Source: openshift/oc#474
Met: OpenShift runs containers under a number that no file knows, with HOME=/ and a root that cannot be written; programs failed at their folder under HOME.
First try: fail: with a store in memory, a program and TLS all is well, but without a store `raincheck run` ends with "the store file /.local/state/.. cannot be
    opened: I/O error: Permission denied" and no word on what to set, while an unset HOME is told "write --store redb:/path/to/file"
Verdict: Mended: a store file that cannot be opened is told with the option that names another one. With a store in memory, or in a folder that can be written, all is well.
"""

import os
import subprocess

import house
from house import free_port, until
from servers import STDIO, LegacyServer

IS_ROOT = os.getuid() == 0
NOBODY = {"user": 1_000_650_000, "group": 0, "extra_groups": [], "cwd": "/"} if IS_ROOT else {"cwd": "/"}
# A folder that cannot be written.
HOME = "/" if IS_ROOT else "/proc"


def test(field):
    field.dir.chmod(0o755)
    server = LegacyServer()
    program = field.write("server.py", STDIO)
    for command in (["--upstream", server.url], ["--", "python3", program]):
        port = free_port()
        log = open(field.dir / f"raincheck-{port}", "wb")
        options = ["run", "--listen", f"127.0.0.1:{port}", "--store", "memory:", *command]
        child = subprocess.Popen([house.RAINCHECK, *options], env={"PATH": os.environ["PATH"], "HOME": HOME}, stderr=log, **NOBODY)
        field.running.append(child)
        raincheck = house.Raincheck(child, "127.0.0.1", port, field.dir / f"raincheck-{port}", True)
        assert raincheck.session().call("slow")["result"]["content"]
        assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"]
    # A client's settings that launch it there: tasks live in memory, and the log says so.
    pipe = subprocess.Popen([house.RAINCHECK, "stdio", "--", "python3", program], env={"PATH": os.environ["PATH"], "HOME": HOME}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(field.dir / "stdio", "wb"), **NOBODY)
    field.running.append(pipe)
    client = house.Pipe(pipe, field.dir / "stdio")
    assert "result" in client.hello()
    until("it says where tasks live", lambda: "tasks live in memory" in client.log())
    refused = {}
    for home in [HOME, "/proc/nonexistent", None]:
        environment = {"PATH": os.environ["PATH"]} | ({"HOME": home} if home else {})
        ended = subprocess.run([house.RAINCHECK, "run", "--listen", f"127.0.0.1:{free_port()}", "--upstream", server.url], env=environment, capture_output=True, text=True, timeout=10, check=False, **NOBODY)
        if "store" not in ended.stderr.splitlines()[-1] or not any(way in ended.stderr.splitlines()[-1] for way in ("--store", "store.url", "XDG_STATE_HOME")):
            refused[home] = ended.stderr.splitlines()[-1]
    assert not refused, refused
