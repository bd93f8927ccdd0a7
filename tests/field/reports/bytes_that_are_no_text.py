"""Area: stdio programs
Source: modelcontextprotocol/python-sdk#2456
Met: One line that was not UTF-8 on a server's standard output ended the client's whole connection, with all calls that ran on it.
First try: pass
Verdict: A line that is no text is skipped; a broken answer ends its own call with the reason, at once, and the process goes on for the others.
"""

import threading

PROGRAM = r'''
import json, os, sys, threading, time
def say(message): os.write(1, json.dumps(message).encode() + b"\n")
def answer(id, result): say({"jsonrpc": "2.0", "id": id, "result": result})
def text(it): return {"content": [{"type": "text", "text": it}]}
def later(id): time.sleep(2); answer(id, text("late"))
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message: continue
    id, method = message["id"], message["method"]
    whole = json.dumps({"jsonrpc": "2.0", "id": id, "result": text("caf@ @")}).encode()
    if method == "initialize":
        answer(id, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": str(os.getpid())}})
    elif method == "tools/list":
        answer(id, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("late", "log", "latin", "zero", "pid")]})
    elif method != "tools/call":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}})
    elif message["params"]["name"] == "late":
        threading.Thread(target=later, args=(id,)).start()
    elif message["params"]["name"] == "log":
        os.write(1, b"\xff\xfe caf\xe9 \x00\x00\n\x00\n\x1b[31mred\x1b[0m\n")
        answer(id, text("after"))
    elif message["params"]["name"] == "latin":
        os.write(1, whole.replace(b"@", b"\xe9") + b"\n")
    elif message["params"]["name"] == "zero":
        os.write(1, whole.replace(b"@", b"\x00") + b"\n")
    else:
        answer(id, text(str(os.getpid())))
'''


def test(field):
    program = field.write("bytes.py", PROGRAM)
    raincheck = field.raincheck("--", "python3", program)
    session = raincheck.session()
    pid = session.call("pid")["result"]["content"][0]["text"]
    late = []
    thread = threading.Thread(target=lambda: late.append(session.call("late", id=50)))
    thread.start()
    assert session.call("log", id=2)["result"]["content"][0]["text"] == "after"
    for id, tool in enumerate(["latin", "zero"], 10):
        answer = session.call(tool, id=id, seconds=5)
        reason = answer.get("error", {}).get("data", {}).get("io.raincheck/reason")
        # A reader that puts the replacement character in place of what is no text is as good.
        assert reason == "upstream_invalid" or "caf" in answer["result"]["content"][0]["text"], answer
    thread.join()
    assert late[0]["result"]["content"][0]["text"] == "late"
    assert session.call("pid", id=60)["result"]["content"][0]["text"] == pid
    assert "\x1b[31m" not in raincheck.log()
    answer = raincheck.modern("tools/call", {"name": "latin"}).answer(7)
    assert answer["error"]["data"]["io.raincheck/reason"] == "upstream_invalid", answer
