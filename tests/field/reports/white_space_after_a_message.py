"""Area: stdio programs
Source: charmbracelet/crush#1658
Met: Programs on the official Go SDK end at white space between a message and its line feed. Of mcp-prometheus 2.1.1 and mcp-grafana 2.1.1 behind `raincheck stdio`,
    no session began: the line feed of the client's own message had become a space.
First try: fail
Verdict: A message goes to a program, and to the client of `raincheck stdio`, without white space behind it, whatever came behind it.
"""

PROGRAM = r'''
import json, sys
for line in iter(sys.stdin.readline, ""):
    if line[-2:] != "}\n":
        sys.exit("invalid trailing data at the end of stream")
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    result = {"content": [{"type": "text", "text": "rain"}]}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), " \r", flush=True)
'''


def test(field):
    program = field.write("strict.py", PROGRAM)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "rain", "arguments": {}}}

    raincheck = field.raincheck("--", "python3", program)
    session = raincheck.session()
    assert session.call("rain")["result"]["content"][0]["text"] == "rain"

    pipe = field.stdio("--", "python3", program)
    first = pipe.hello()
    assert "result" in first, first
    pipe.say(call)
    assert pipe.answer(1)["result"]["content"][0]["text"] == "rain"
