"""Area: stdio programs
Source: auth0/auth0-mcp-server#161
Met: A server logged by a notification before anybody had said hello, and strict clients took that for the answer to `initialize` and gave up.
First try: pass
Verdict: The first message that a client sees is the answer to its `initialize`; what the program said or asked before comes after it or not at all, and a ping of the
    program is answered.
"""

import json

PROGRAM = r'''
import json, sys, time
def say(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "running with 21 tools"}})
say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
say({"jsonrpc": "2.0", "id": 0, "method": "ping"})
say({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"})
pinged = "not answered"
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message and message["id"] == 0: pinged = json.dumps(message.get("result", "an error"))
    if "id" not in message or "method" not in message: continue
    id, method = message["id"], message["method"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "nearly there"}})
        time.sleep(0.3)
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "pinged", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        say({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": pinged}]}})
    else:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
'''


def test(field):
    program = field.write("eager.py", PROGRAM)
    pipe = field.stdio("--", "python3", program)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    pipe.say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    first = pipe.message()
    assert first.get("id") == 0 and "result" in first, first
    pipe.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    pipe.say({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    answered = 0
    while (message := pipe.message()).get("id") != 1 or "method" in message:
        if "method" in message and "id" in message:
            answered += 1
            pipe.say({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []} if message["method"] == "roots/list" else {}})
    assert message["result"]["tools"][0]["name"] == "pinged"
    pipe.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "pinged", "arguments": {}}})
    assert pipe.answer(2)["result"]["content"][0]["text"] == "{}", answered

    raincheck = field.raincheck("--", "python3", program)
    session = raincheck.session()
    assert session.first.messages()[0].get("id") == 0 and "result" in session.first.messages()[0], session.first.text
    assert "result" in session.call("pinged")
    answer = raincheck.modern("tools/call", {"name": "pinged"})
    assert json.loads(answer.answer(7)["result"]["content"][0]["text"]) == {}, answer.text
