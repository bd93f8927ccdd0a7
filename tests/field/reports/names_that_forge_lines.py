"""Area: security
Source: arjun-techjays/bos#19
Met: Names of tools and clients with line breaks and escape sequences were printed as they came, and forged lines in the terminal and the log of the operator who was to judge them.
First try: pass
Verdict: Control characters, separators of lines and controls of direction are replaced in the log, in /metrics and by the commands that operators run; each event stays one line.
"""

import os
import re
import subprocess

from house import RAINCHECK, free_port, http, until
from servers import LegacyServer

EVIL = "x\n2026-01-01T00:00:00Z ERROR forged\r\x1b[2J\x1b]0;owned\x07\x9b31m\u2028\u202e"
CONTROLS = "\r\x1b\x07\x9b\u2028\u202e"


class Server(LegacyServer):
    def __init__(self):
        self.tools = [{"name": EVIL, "description": EVIL, "inputSchema": {"type": "object"}}]
        super().__init__()

    def result(self, message, connection, headers):
        if message["method"] == "initialize":
            about = {"serverInfo": {"name": EVIL, "version": EVIL}, "instructions": EVIL}
            return {"protocolVersion": self.version, "capabilities": self.capabilities, **about}
        if message["method"] == "tools/call" and message["params"]["arguments"].get("fail"):
            return {"content": [{"type": "text", "text": EVIL}], "isError": True}
        return super().result(message, connection, headers)


def test(field):
    server, port = Server(), free_port()
    settings = f'[tasks]\ngrace_window = "50ms"\n[admin]\nlisten = "127.0.0.1:{port}"\n'
    raincheck = field.raincheck("--upstream", server.url, config=settings)
    session = raincheck.session(name=EVIL)
    session.ask("tools/list")
    session.call(EVIL, {"s": 0.2})
    session.call(EVIL, {"fail": True})
    session.ask(f"evil{EVIL}")
    task = session.ask("tools/call", {"name": EVIL, "arguments": {"s": 0.3}, "task": {}}, id=5).answer(5)
    assert "result" in task, task
    until("the end of the task is told", lambda: "task ended" in raincheck.log())
    raincheck.http("GET", path="/%0a%1b[31m", headers={"user-agent": "a\x9b31m", "x-a": "\x85"})
    said = raincheck.log()
    shown = [http(port, "GET", path="/metrics").text]
    env = {"PATH": os.environ["PATH"], "HOME": str(field.dir), "TERM": "xterm"}
    for command in (["tasks", "--admin", f"127.0.0.1:{port}"], ["check", "--upstream", server.url], ["call", server.url], ["call", server.url, EVIL]):
        done = subprocess.run([RAINCHECK, *command], capture_output=True, text=True, env=env, timeout=20)
        shown += [done.stdout, done.stderr]
    for text in (said, *shown):
        assert not [sign for sign in CONTROLS if sign in text], repr([text[max(0, text.index(s) - 80) :][:160] for s in CONTROLS if s in text][0])
        assert not re.search(r"^2026-01-01T", text, re.M), text
    assert "forged" in said
