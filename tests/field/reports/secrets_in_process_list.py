"""Area: deployment
Source: open-mercato/open-mercato#2669
Met: The key of a stdio server stood in the command line of its process, where every user of the machine, audit logs and monitoring agents could read it.
First try: pass
Verdict: Secrets come by environment or file, and are in no command line, neither raincheck's nor the program's, in no line of the log at its finest level, in no page for
    operators and in no error; a program of the same user cannot read raincheck's environment or memory, and an address with a key in its query is shown without it.
"""

import os
import pathlib
import subprocess

import house
from house import free_port, http, until
from servers import STDIO, LegacyServer

SECRETS = {name: f"{name}-5f4dcc3b5aa765d61d8327deb882cf99" for name in ("upstreamkey", "programkey", "filekey", "draintoken", "admintoken", "redispass", "querykey")}
# A program that looks around.
NOSY = STDIO.replace('        time.sleep(', '''        import os
        found = []
        for name in ("environ", "mem", "maps", "fd/0"):
            try: open(f"/proc/{os.getppid()}/{name}", "rb").read(1); found.append(name)
            except OSError: pass
        return {"content": [{"type": "text", "text": json.dumps([found, os.environ.get("PROGRAM_KEY"), os.environ.get("FILE_KEY")])}]}
        time.sleep(''')


def test(field):
    field.dir.chmod(0o755)
    file = field.write("filekey", SECRETS["filekey"] + "\n")
    server = LegacyServer()
    redis = field.redis("--requirepass", SECRETS["redispass"], "--maxmemory-policy", "noeviction")
    program = field.write("nosy.py", NOSY)
    someone = {"user": 1_000_650_000, "group": 0, "extra_groups": [], "cwd": "/"} if os.getuid() == 0 else {}
    for name, command in {"url": ["--upstream", f"{server.url}?api_key={SECRETS['querykey']}"], "program": ["--", "python3", program]}.items():
        port, admin, probes = free_port(), free_port(), free_port()
        environment = {
            "PATH": os.environ["PATH"], "RAINCHECK_DRAIN__TOKEN": SECRETS["draintoken"], "RAINCHECK_ADMIN__TOKEN": SECRETS["admintoken"], "RAINCHECK_ADMIN__LISTEN": f"127.0.0.1:{admin}",
            "RAINCHECK_ADMIN__PROBES": f"127.0.0.1:{probes}", "RAINCHECK_STORE__URL": f"redis://:{SECRETS['redispass']}@127.0.0.1:{redis}", "RAINCHECK_STORE__NAMESPACE": name,
            "RAINCHECK_TELEMETRY__LOG": "trace", "RAINCHECK_TELEMETRY__ACCESS_LOG": "true",
        }
        if name == "url":
            environment["RAINCHECK_UPSTREAM__HEADERS__X_API_KEY"] = SECRETS["upstreamkey"]
        else:
            environment |= {"RAINCHECK_UPSTREAM__ENV__PROGRAM_KEY": SECRETS["programkey"], "RAINCHECK_UPSTREAM__ENV_FILES__FILE_KEY": file}
        log = field.dir / f"raincheck-{port}"
        shown = [] if name == "program" else [SECRETS["querykey"]]
        with open(log, "wb") as errors:
            child = subprocess.Popen([house.RAINCHECK, "run", "--listen", f"127.0.0.1:{port}", *command], env=environment, stderr=errors, **someone)
        field.running.append(child)
        raincheck = house.Raincheck(child, "127.0.0.1", port, log, True)
        text = raincheck.session().call("slow")["result"]["content"][0]["text"]
        bearer = {"authorization": f"Bearer {SECRETS['admintoken']}"}
        pages = [http(admin, "GET", path=path, headers=bearer) for path in ("/config", "/metrics", "/tasks", "/readyz", "/level")]
        assert pages[0].status == 200
        assert http(admin, "GET", path="/config").status == 401
        commands = ""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                stat = (process / "stat").read_text().rsplit(")", 1)[1].split()
                if int(process.name) == child.pid or int(stat[1]) == child.pid:
                    commands += (process / "cmdline").read_text().replace("\0", " ") + "\n"
            except OSError:
                pass
        assert "raincheck" in commands
        until("something was logged", lambda: "serving" in raincheck.log())
        places = {"log": raincheck.log(), "pages": "".join(page.text for page in pages), "commands": commands}
        # What was written on the command line is there; what came otherwise is not.
        leaks = [(place, secret) for place, said in places.items() for secret in SECRETS.values() if secret in said and not (place == "commands" and secret in shown)]
        assert not leaks, leaks
        if name == "program":
            assert text == f'[[], "{SECRETS["programkey"]}", "{SECRETS["filekey"]}"]' or not someone, text
        child.terminate()
        assert child.wait(10) == 0
        assert not [secret for secret in SECRETS.values() if secret in raincheck.log()]
