"""Area: clients
Source: strands-agents/harness-sdk#1742
Met: A server answered a call with an error whose data had the address where the user must sign in; on the way to the host only the message was left, and the user could not sign in.
First try: pass
Verdict: The server's own errors reach the client with code, message and data as they are, also as the end of a task. The one
    error that 2026-07-28 no longer has (-32042) reaches its clients inside another one.
"""

import json

from servers import STDIO, LegacyServer, ModernServer

ERRORS = [
    {"code": -32042, "message": "Sign in first \u2603", "data": {"elicitations": [{"mode": "url", "url": "https://example.com/a?b=c&d", "elicitationId": "e1", "message": "Sign in"}]}},
    {"code": -32000, "message": "", "data": None},
    {"code": 4711, "message": "own", "data": [1, {"x": "y" * 3000}]},
    {"code": -32602, "message": "Unknown tool: slow"},
]


class Legacy(LegacyServer):
    version = "2025-11-25"

    def write(self, connection, out, message, headers):
        if message["method"] == "tools/call":
            out = {"jsonrpc": "2.0", "id": out["id"], "error": ERRORS[message["params"]["arguments"]["n"]]}
        super().write(connection, out, message, headers)


class Modern(ModernServer):
    def write(self, connection, out, message, headers):
        if message["method"] == "tools/call":
            out = {"jsonrpc": "2.0", "id": out["id"], "error": ERRORS[message["params"]["arguments"]["n"]]}
        super().write(connection, out, message, headers)


PROGRAM = f"ERRORS = {ERRORS!r}\n" + STDIO.replace(
    '        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})',
    '        error = message["method"] == "tools/call" and ERRORS[message["params"]["arguments"]["n"]]\n'
    '        say({"jsonrpc": "2.0", "id": message["id"], **({"error": error} if error else {"result": result(message)})})',
)


def test(field):
    program = field.write("server.py", PROGRAM)
    for upstream in (["--upstream", Legacy().url], ["--upstream", Modern().url], ["--", "python3", program]):
        raincheck, always = field.raincheck(*upstream), field.raincheck(*upstream, config='[[tools]]\nname = "slow"\nmode = "always"\n')
        carried, pipe = field.raincheck(*upstream, config="[tasks]\ncompanion_tools = true\n").session(), field.stdio(*upstream)
        session = raincheck.session()
        pipe.hello()
        for n, wanted in enumerate(ERRORS):
            call = {"name": "slow", "arguments": {"n": n}}
            pipe.say({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": call})
            task = always.modern("tools/call", call).answer(7)["result"]["taskId"]
            ended = always.finished(task)["result"]
            assert ended["status"] == "failed", ended
            ways = {
                "session": session.call("slow", {"n": n})["error"],
                "carried": carried.call("slow", {"n": n})["error"],
                "modern": raincheck.modern("tools/call", call, tasks=False).answer(7)["error"],
                "tasks": raincheck.modern("tools/call", call).answer(7)["error"],
                "stdio": pipe.answer(n)["error"],
                "task": ended["error"],
            }
            for way, got in ways.items():
                if wanted["code"] == -32042 and way in ("modern", "tasks", "task"):
                    # An error of 2025-11-25 only. This client cannot be asked to visit a page, but nothing is lost.
                    assert wanted["data"]["elicitations"][0]["url"] in json.dumps(got) and "Sign in" in json.dumps(got), (way, got)
                    continue
                assert got == wanted or {**wanted, "data": got.get("data")} == got and wanted.get("data") is None, (upstream[:2], way, json.dumps(got)[:300], wanted["code"])
