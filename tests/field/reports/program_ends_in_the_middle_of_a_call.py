"""Area: stdio programs
Source: modelcontextprotocol/typescript-sdk#1049
Met: A server process that ended by itself, with code 0, took the client down with an error that nobody caught, or left its call without any answer.
First try: pass
Verdict: The call ends at once, and says whether it may have run; an answer that was written without a line end counts, the next call has a new process, a task fails
    with the reason, and `raincheck stdio` goes on with its client.
"""

import time

PROGRAM = r'''
import json, os, sys, time
def say(message, end="\n"): sys.stdout.write(json.dumps(message) + end); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    id, method = message["id"], message["method"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("exit", "kill", "half", "last", "fine")]}})
    elif method != "tools/call":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
    else:
        time.sleep((message["params"].get("arguments") or {}).get("s", 0))
        whole = {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}]}}
        name = message["params"]["name"]
        if name == "exit": os._exit(0)
        if name == "kill": os.kill(os.getpid(), 9)
        if name == "half": sys.stdout.write(json.dumps(whole)[:-9]); sys.stdout.flush(); os._exit(0)
        if name == "last": say(whole, ""); os._exit(0)
        say(whole)
'''


def test(field):
    program = field.write("ends.py", PROGRAM)
    raincheck = field.raincheck("--", "python3", program)
    for tool in ["exit", "kill", "half"]:
        begin = time.monotonic()
        session = raincheck.session()
        for answer in (session.call(tool), raincheck.modern("tools/call", {"name": tool}).answer(7)):
            assert answer["error"]["data"]["io.raincheck/effect"] == "unknown", (tool, answer)
        assert session.ask("tools/call", {"name": "fine"}, 2).status == 404, "a session without its process is over"
        assert raincheck.modern("tools/call", {"name": "fine"}).answer(7)["result"]["content"][0]["text"] == "done"
        assert time.monotonic() - begin < 5
    assert raincheck.session().call("last")["result"]["content"][0]["text"] == "done"
    assert raincheck.modern("tools/call", {"name": "last"}).answer(7)["result"]["content"][0]["text"] == "done"
    task = raincheck.modern("tools/call", {"name": "exit", "arguments": {"s": 3}}).answer(7)["result"]["taskId"]
    ended = raincheck.finished(task)["result"]
    assert ended["status"] == "failed" and ended["error"]["data"]["io.raincheck/reason"] == "upstream_reset", ended

    pipe = field.stdio("--", "python3", program)
    pipe.hello()
    for id, tool in enumerate(["exit", "fine", "kill", "fine", "last", "exit", "fine"], 1):
        pipe.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {"s": 0.1}}})
        answer = pipe.answer(id, 8)
        assert ("result" in answer) == (tool in ("fine", "last")), (tool, answer)
        # That a process which has just answered may be about to end is another report.
        time.sleep(0.3)
