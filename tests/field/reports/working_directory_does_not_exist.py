"""Area: stdio programs
Source: nicobailon/pi-mcp-adapter#442
Met: With a working directory that does not exist, the error blamed the program, which was there; people looked for the wrong mistake.
First try: fail: the log of `raincheck run` and `raincheck stdio` says "the server's process could not be started error=No such file or directory" and names neither
    the directory nor the setting, and run goes on, while a missing program ends it; a program with a relative path "does not exist"
Verdict: Mended: the start ends and names the directory.
"""

import subprocess

import house
from house import free_port, until
from servers import STDIO


def test(field):
    program = field.write("server.py", "#!/usr/bin/env python3\n" + STDIO, 0o755)
    missing = str(field.dir / "no" / "such")
    config = f'[upstream]\ncommand = ["python3", "{program}"]\ncwd = "{missing}"\n'

    raincheck = field.raincheck(config=config, ready=False)
    told = ["could not be started", "raincheck: "]
    until("the start fails", lambda: any(it in raincheck.log() for it in told) or raincheck.child.poll() is not None)
    pipe = field.stdio(config=config)
    pipe.say({"jsonrpc": "2.0", "id": 0, "method": "ping"})
    until("the start fails", lambda: any(it in pipe.log() for it in told) or pipe.child.poll() is not None)

    relative = field.write("relative.toml", f'[upstream]\ncommand = ["./server.py"]\ncwd = "{missing}"\n')
    options = ["run", "--listen", f"127.0.0.1:{free_port()}", "--store", "memory:", "--config", relative]
    ended = subprocess.run([house.RAINCHECK, *options], capture_output=True, text=True, timeout=10, check=False)
    said = {"run": raincheck.log(), "stdio": pipe.log(), "relative": ended.stderr}
    silent = [name for name, log in said.items() if missing not in log and "upstream.cwd" not in log]
    assert not silent, f"neither the directory nor its setting is named: {silent}: {ended.stderr}"
