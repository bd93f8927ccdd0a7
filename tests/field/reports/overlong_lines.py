"""Area: stdio programs
Source: DeusData/codebase-memory-mcp#1375
Met: One answer above the limit of the pipe ended the whole server without a word, with all other calls of the session.
First try: fail: an answer of 50 MB ends its own call alone, but a log notification, or a line of log, of 40 MB kills the process and with it every call and the session
Verdict: Mended: a notification or a line of text that is longer than allowed is read over to its end. Only an answer whose call cannot be seen still ends its process.
"""

import threading

PROGRAM = r'''
import json, os, sys, threading, time
lock = threading.Lock()
def out(text):
    with lock: sys.stdout.write(text + "\n"); sys.stdout.flush()
def say(message): out(json.dumps(message))
def text(id, it): say({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": it}]}})
def later(id): time.sleep(5); text(id, str(os.getpid()))
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    id, method = message["id"], message["method"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "fake", "version": "1"}}})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": id, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("late", "large", "answer", "notification", "log")]}})
    elif method != "tools/call":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
    elif message["params"]["name"] == "late":
        threading.Thread(target=later, args=(id,)).start()
    elif message["params"]["name"] == "large":
        text(id, "x" * 3_000_000)
    elif message["params"]["name"] == "answer":
        text(id, "x" * 50_000_000)
    else:
        if message["params"]["name"] == "notification":
            say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "debug", "data": "x" * 40_000_000}})
        else:
            out("DEBUG " + "x" * 40_000_000)
        text(id, "after")
'''


def test(field):
    raincheck = field.raincheck("--", "python3", field.write("overlong.py", PROGRAM))
    faults = []
    for tool in ["answer", "notification", "log"]:
        session = raincheck.session()
        late = []
        thread = threading.Thread(target=lambda session=session, late=late: late.append(session.ask("tools/call", {"name": "late"}, 50)))
        thread.start()
        answer = session.ask("tools/call", {"name": tool}, 1)
        if tool == "answer":
            assert len(session.call("large", id=2)["result"]["content"][0]["text"]) == 3_000_000
            assert answer.answer(1)["error"]["data"]["io.raincheck/reason"] == "upstream_too_large"
        elif "after" not in answer.text:
            faults.append(f"{tool}: its own call: {answer.text[-300:]}")
        thread.join()
        if '"result"' not in late[0].text:
            faults.append(f"{tool}: another call of the process: {late[0].text[-300:]}")
    assert not faults, faults
