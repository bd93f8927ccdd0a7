"""Area: stdio programs
Source: btsouth/toolport#167
Met: Servers that ask in the middle of a call (sampling, elicitation, roots) broke without a word behind a gateway that does not pass requests of servers on.
First try: pass
Verdict: Questions over the pipe reach the client of the call, also under ids that equal those of the client's own requests, on stdio, on a session and as inputs of a
    task; a client that cannot be asked is not, and the program hears so at once.
"""

import json

PROGRAM = r'''
import json, sys
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASKS = {"ask": ("elicitation/create", FORM), "sample": ("sampling/createMessage", {"messages": [], "maxTokens": 5}), "roots": ("roots/list", None)}
waiting = {}
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        say({"jsonrpc": "2.0", "id": waiting.pop(message["id"]), "result": {"content": [{"type": "text", "text": json.dumps(message.get("result") or "refused")}]}})
        continue
    if "id" not in message: continue
    id, method = message["id"], message["method"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ASKS]}})
    elif method == "tools/call":
        question, params = ASKS[message["params"]["name"]]
        waiting[id] = id
        say({"jsonrpc": "2.0", "id": id, "method": question} | ({"params": params} if params else {}))
    else:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
'''
ANSWERS = {
    "ask": {"action": "accept", "content": {"name": "Ada"}},
    "sample": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}},
    "roots": {"roots": [{"uri": "file:///srv"}]},
}
CAPABLE = {"elicitation": {}, "sampling": {}, "roots": {}}


def test(field):
    program = field.write("asks.py", PROGRAM)
    pipe = field.stdio("--", "python3", program)
    pipe.hello(capabilities=CAPABLE)
    for id, tool in enumerate(ANSWERS, 1):
        pipe.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
        while "method" not in (question := pipe.message()) or "id" not in question:
            assert question.get("id") != id, question
        pipe.say({"jsonrpc": "2.0", "id": question["id"], "result": ANSWERS[tool]})
        assert json.loads(pipe.answer(id)["result"]["content"][0]["text"]) == ANSWERS[tool], tool

    raincheck = field.raincheck("--", "python3", program)
    for tool, answer in ANSWERS.items():
        task = raincheck.modern("tools/call", {"name": tool}, capabilities=CAPABLE).answer(7)["result"]["taskId"]
        asked = raincheck.finished(task, capabilities=CAPABLE)["result"]
        assert asked["status"] == "input_required", asked
        (key,) = asked["inputRequests"]
        told = raincheck.modern("tasks/update", {"taskId": task, "inputResponses": {key: answer}}, capabilities=CAPABLE).answer(7)
        assert "error" not in told, told
        ended = raincheck.finished(task, capabilities=CAPABLE)["result"]
        assert json.loads(ended["result"]["content"][0]["text"]) == answer, ended
        # A client that cannot be asked.
        refused = raincheck.modern("tools/call", {"name": tool}, seconds=10).answer(7)
        assert "error" in refused or json.loads(refused["result"]["content"][0]["text"]) == "refused", refused
