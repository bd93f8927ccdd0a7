"""Area: stdio programs
Source: cline/cline#3533
Met: A tool used HOME, and the client that started its server passed PATH alone; others lost PATH as soon as they set one variable of their own.
First try: pass
Verdict: The program sees the six variables of the official SDKs, what `env_allow` names and what `env` sets, over run and stdio; secrets of raincheck's own environment, an
    empty HOME of a container, and shell functions do not reach it. `raincheck check` says so when the program ends for want of a variable.
"""

import json
import os
import subprocess

import house
from house import free_port

PROGRAM = r'''
import json, os, sys
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    result = {"content": [{"type": "text", "text": json.dumps([dict(os.environ), os.getcwd(), os.sysconf("SC_OPEN_MAX")])}]}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "env", "inputSchema": {"type": "object"}}]}
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})
'''


def test(field):
    program = field.write("env.py", PROGRAM)
    work = field.dir / "a work folder"
    work.mkdir()
    secret = field.dir / "key"
    secret.write_text("from a file\n")
    outer = {
        "HOME": str(field.dir), "PATH": os.environ["PATH"], "LANG": "de_DE.UTF-8", "HTTPS_PROXY": "http://127.0.0.1:9", "DATABASE_URL": "postgres://u:secret@db",
        "RAINCHECK_STORE__SEAL_KEY": "5a" * 32, "RAINCHECK_UPSTREAM__ENV__LOG_LEVEL": "debug", "RAINCHECK_UPSTREAM__ENV_ALLOW": "LANG,HTTPS_PROXY",
        "RAINCHECK_UPSTREAM__CWD": str(work), "RAINCHECK_UPSTREAM__ENV_FILES__API_KEY": str(secret),
    }

    def judge(text):
        seen, folder, files = json.loads(text)
        wanted = {"HOME", "PATH", "LANG", "HTTPS_PROXY", "LOG_LEVEL", "API_KEY"}
        assert wanted <= seen.keys() <= wanted | {"LC_CTYPE"}, seen.keys()
        assert (seen["API_KEY"], seen["LOG_LEVEL"], seen["LANG"]) == ("from a file", "debug", "de_DE.UTF-8")
        assert folder == str(work)
        assert files <= 1_048_576

    raincheck = field.raincheck("--", "python3", program, env=outer)
    judge(raincheck.session().call("env")["result"]["content"][0]["text"])
    judge(raincheck.modern("tools/call", {"name": "env"}).answer(7)["result"]["content"][0]["text"])
    pipe = field.stdio("--", "python3", program, env=outer)
    pipe.hello()
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "env", "arguments": {}}})
    judge(pipe.answer(1)["result"]["content"][0]["text"])

    strict = field.write("strict.py", "import os, sys\nos.environ.get('DATABASE_URL') or sys.exit('DATABASE_URL is not set')\n")
    options = ["check", "--listen", f"127.0.0.1:{free_port()}", "--store", "memory:", "--", "python3", strict]
    found = subprocess.run([house.RAINCHECK, *options], env={"PATH": os.environ["PATH"], "DATABASE_URL": "x", "HOME": str(field.dir)}, capture_output=True, text=True, timeout=20, check=False)
    assert found.returncode == 1 and "DATABASE_URL is not set" in found.stdout and "upstream.env_allow" in found.stdout, found.stdout
