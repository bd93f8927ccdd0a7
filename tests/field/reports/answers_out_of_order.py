"""Area: stdio programs
Source: voicetreelab/lazy-mcp#8
Met: Calls that went to one stdio server at the same time all ran into their timeouts, because the gateway could not tell which answer belonged to which call.
First try: pass
Verdict: Calls share the pipe, messages are written whole and answers find their calls by id, in whatever order and however they are cut into writes.
"""

import concurrent.futures
import threading

PROGRAM = r'''
import json, os, random, sys, threading, time
lock = threading.Lock()
def say(message):
    text = json.dumps(message).encode() + b"\n"
    with lock:
        while text:
            cut = random.choice((1, 7, 4096, 100_000)); os.write(1, text[:cut]); text = text[cut:]
held = []
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    id, method = message["id"], message["method"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        held.append({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}})
        if len(held) == 8:
            for answer in reversed(held): say(answer)
            held = []
    else:
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
'''


def test(field):
    program = field.write("reversed.py", PROGRAM)
    raincheck = field.raincheck("--", "python3", program, config='[upstream]\nsession = "caller"\n')

    def texts(call):
        wanted = [f"{number}-" + "é\n" * 20_000 for number in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = list(pool.map(call, range(1, 9), wanted))
        assert [it["result"]["content"][0]["text"] for it in got] == wanted

    session = raincheck.session()
    texts(lambda id, text: session.call("echo", {"text": text}, id))
    texts(lambda id, text: raincheck.modern("tools/call", {"name": "echo", "arguments": {"text": text}}, id=id).answer(id))
    pipe = field.stdio("--", "python3", program)
    pipe.hello()
    arrived, lock = {}, threading.Lock()

    def over_pipe(id, text):
        pipe.say({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": text}}})

    wanted = {id: f"{id}-" + "x" * 30_000 for id in range(1, 9)}
    for id, text in wanted.items():
        with lock:
            over_pipe(id, text)
    while len(arrived) < 8:
        message = pipe.message()
        if "result" in message:
            arrived[message["id"]] = message["result"]["content"][0]["text"]
    assert arrived == wanted
