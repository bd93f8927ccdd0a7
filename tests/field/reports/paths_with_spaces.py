"""Area: stdio programs
Source: anthropics/claude-ai-mcp#891
Met: A server ended at its start as soon as the path of an allowed directory had a space, because a launcher took the words of the command apart again.
First try: pass
Verdict: No shell comes between: a path or an argument with spaces, quotes, dollars, newlines, letters outside ASCII or nothing at all arrives as it was written, as
    does a program behind a symlink, a relative path, and a name that is looked up in PATH. A whole command line in one word is refused with what to write.
"""

import json
import os
import subprocess

import house
from house import free_port

PROGRAM = r'''#!/usr/bin/env python3
import json, os, sys
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    result = {"content": [{"type": "text", "text": json.dumps(sys.argv[1:])}]}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "args", "inputSchema": {"type": "object"}}]}
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})
'''
WORDS = ["C:\\No Backup\\Claude Code Group", "", "$HOME", "a\nb", '"quoted" \'too\'', "*", "straße/日本語", "--listen", "--", "; exit 1"]


def test(field):
    folder = field.dir / "Ünïcode & Co (1)" / "bin dir"
    folder.mkdir(parents=True)
    program = folder / "mein server.py"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (field.dir / "link").symlink_to(program)
    (folder / "plain-name").symlink_to(program)
    commands = {
        "absolute": [str(program)],
        "relative": [f"./{program.relative_to(field.dir)}"],
        "symlink": ["./link"],
        "PATH": ["plain-name"],
        "shell": ["sh", "-c", 'exec "$0" "$@"', str(program)],
    }
    search = {"PATH": f"{folder}:{os.environ['PATH']}"}
    for name, command in commands.items():
        pipe = field.stdio("--", *command, *WORDS, env=search)
        pipe.hello()
        pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "args", "arguments": {}}})
        assert json.loads(pipe.answer(1)["result"]["content"][0]["text"]) == WORDS, name
        pipe.child.stdin.close()
    raincheck = field.raincheck(config=f"[upstream]\ncommand = {json.dumps([str(program), *WORDS], ensure_ascii=False)}\n")
    assert json.loads(raincheck.session().call("args")["result"]["content"][0]["text"]) == WORDS

    options = ["run", "--listen", f"127.0.0.1:{free_port()}", "--store", "memory:", "--", "npx -y some-server"]
    refused = subprocess.run([house.RAINCHECK, *options], capture_output=True, text=True, timeout=10, check=False)
    assert refused.returncode == 2 and '["npx", "-y", "some-server"]' in refused.stderr, refused.stderr
