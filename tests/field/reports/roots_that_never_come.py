"""Area: clients
Source: ChromeDevTools/chrome-devtools-mcp#2476
Met: A server asked its client for roots before its first tool ran; the client had declared roots and never answered, so each first call took a minute.
First try: pass
Verdict: A server hears of roots only if the client of the call declares them; without, its question is refused at once and the call goes on. Roots that a client has reach the server,
    in a call and before one, and a client that never answers holds up its own call only.
"""

import threading
import time

from servers import STDIO

ASKS = (
    STDIO.replace("import json, sys, time", "import json, sys, time, threading\nanswers = {}\ncame = threading.Condition()\ndeclared = {}")
    .replace("def result(message):\n", '''def roots(id):
    if "roots" not in declared: return "not declared"
    say({"jsonrpc": "2.0", "id": id, "method": "roots/list"})
    with came:
        came.wait_for(lambda: id in answers, 6)
    return json.dumps(answers.get(id, "never"))
def result(message):
    if message["method"] == "initialize": declared.update(message["params"]["capabilities"])
''', 1)
    .replace('"text": "done"', '"text": roots("r%s" % message["id"])')
    .replace("    message = json.loads(line)\n", '''    message = json.loads(line)
    if "method" not in message:
        with came:
            answers[message["id"]] = message.get("result", message.get("error"))
            came.notify_all()
        continue
''')
    .replace('        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})', '        threading.Thread(target=lambda m=message: say({"jsonrpc": "2.0", "id": m["id"], "result": result(m)})).start()')
)
CALL = {"name": "slow", "arguments": {}}
ROOTS = {"roots": [{"uri": "file:///home/ada", "name": "home"}]}


def test(field):
    program = field.write("server.py", ASKS)
    upstream = ["--", "python3", program]
    raincheck = field.raincheck(*upstream)

    def timed(call, most):
        begun = time.monotonic()
        answer = call()
        assert time.monotonic() - begun < most, time.monotonic() - begun
        return answer["result"]["content"][0]["text"]

    # Clients that have none.
    assert "not declared" in timed(lambda: raincheck.session().call("slow"), 4)
    assert "not declared" in timed(lambda: raincheck.modern("tools/call", CALL, tasks=False).answer(7), 4)
    # A client that answers.
    pipe = field.stdio(*upstream)
    pipe.hello(capabilities={"roots": {"listChanged": True}})
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})
    question = pipe.message()
    assert question["method"] == "roots/list", question
    pipe.say({"jsonrpc": "2.0", "id": question["id"], "result": ROOTS})
    assert "file:///home/ada" in pipe.answer(1)["result"]["content"][0]["text"]
    # A client that is silent: its own call waits, and nothing else does.
    silent = field.stdio(*upstream)
    silent.hello(capabilities={"roots": {}})
    silent.say({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})
    assert silent.message()["method"] == "roots/list"
    silent.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert silent.answer(2, 3)["result"]["tools"]
    # With a task.
    capabilities = {"roots": {}}
    task = raincheck.modern("tools/call", CALL, capabilities=capabilities).answer(7)["result"]["taskId"]
    asked = raincheck.finished(task, capabilities=capabilities)["result"]["inputRequests"]
    raincheck.modern("tasks/update", {"taskId": task, "inputResponses": dict.fromkeys(asked, ROOTS)}, capabilities=capabilities)
    done = threading.Event()
    done.wait(0.1)
    assert "file:///home/ada" in raincheck.finished(task, capabilities=capabilities)["result"]["result"]["content"][0]["text"]
    assert "never" in silent.answer(1)["result"]["content"][0]["text"]
