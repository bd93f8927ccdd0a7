"""An MCP server over standard input and output that does what the name of the tool says.

    stdio_server.py legacy|modern|dual|deaf|strict|stubborn|dies [FILE]

`dual` keeps to the era of the first message, `deaf` ignores what it does not know, `strict` ends at a first
message that is no `initialize`, `stubborn` ignores the end of its input and SIGTERM,
`dies` does so at its start, unless the file is there. The environment's CALLS names a file that lists the calls'
tokens. One thread and no clocks: what waits, waits for a message.
"""

import json
import os
import signal
import subprocess
import sys
import threading

MODE = sys.argv[1]
MODERN = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
OUT = sys.stdout.buffer

held, freed, asked, seen, subscriptions = {}, set(), {}, [], []
era = {"modern": "modern", "dual": None}.get(MODE, "legacy")


def write(message):
    OUT.write(json.dumps(message).encode() + b"\n")
    OUT.flush()


def answer(id, result):
    write({"jsonrpc": "2.0", "id": id, "result": {**({"resultType": "complete"} if era == "modern" else {}), **result}})


def text(id, words, **more):
    answer(id, {"content": [{"type": "text", "text": words}], **more})


def refuse(id, code, message="no", **more):
    write({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, **more}})


def notify(method, params):
    write({"jsonrpc": "2.0", "method": method, "params": params})


TOOLS = "echo hold slow release progress logs burst ask ask_twice input exit segv garbage stderr long no_newline unfinished "
TOOLS += "unreadable holding freeze close_stdout twice wrong_id orphan leave_behind pid env seen changed"


def call(id, params):
    name, arguments = params["name"], params.get("arguments") or {}
    if "CALLS" in os.environ:
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(f"{arguments.get('token', '?')}\n")
    token = (params.get("_meta") or {}).get("progressToken")
    match name:
        case "echo":
            text(id, arguments.get("text", ""))
        case "hold":
            if arguments["nonce"] in freed:
                return text(id, arguments["nonce"])
            held[arguments["nonce"]] = id
        case "slow":
            threading.Timer(arguments["ms"] / 1000, text, (id, arguments.get("says", "") * arguments.get("times", 1) or "slept")).start()
        case "release":
            for nonce in arguments["nonces"]:
                freed.add(nonce)
                if nonce in held:
                    text(held.pop(nonce), nonce)
            text(id, "released")
        case "holding":
            text(id, str(len(held)))
        case "progress":
            for which, step in ((token, 1), ("foreign", 2), (token, 3)):
                notify("notifications/progress", {"progressToken": which, "progress": step, "total": 3})
            if "nonce" in arguments:
                held[arguments["nonce"]] = id
            else:
                text(id, "done")
        case "logs":
            notify("notifications/message", {"level": "debug", "data": "little"})
            notify("notifications/message", {"level": "error", "data": "much"})
            text(id, "logged")
        case "burst":
            pad = "." * arguments["bytes"]
            lines = [{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": [n, pad]}} for n in range(arguments.get("n", 50))]
            OUT.write("".join(json.dumps(line) + "\n" for line in lines).encode())
            text(id, "said")
        case "ask" | "ask_twice":
            put_question(id, arguments.get("method", "elicitation/create"), 1 if name == "ask" else 2)
        case "input":
            if "inputResponses" in params:
                text(id, params["inputResponses"]["who"]["content"]["name"] + params["requestState"])
            else:
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                ask = {"method": "elicitation/create", "params": {"mode": "form", "message": "Your name?", "requestedSchema": schema}}
                answer(id, {"resultType": "input_required", "inputRequests": {"who": ask}, "requestState": "!"})
        case "exit":
            os._exit(3)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "garbage":
            OUT.write(b"Listening on port 80\n\n[1,2]\n{\"id\":\n\xff\xfe\n{}\n" + b"null\n" * 100)
            text(id, "clean")
        case "stderr":
            for _ in range(arguments["bytes"] // 4006 + 1):
                sys.stderr.buffer.write(b"\x1b[31m" + b"x" * 4000 + b"\n")
            text(id, "loud")
        case "long":
            # It may hold the answer to any call. A long text would be read over.
            OUT.write(b"[")
            for left in range(arguments["bytes"], 0, -(1 << 20)):
                OUT.write(b"x" * min(left, 1 << 20))
            OUT.flush()
        case "large":
            text(id, "x" * arguments["bytes"])
        case "no_newline":
            OUT.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).encode())
            OUT.flush()
            os._exit(0)
        case "unfinished":
            OUT.write(b'{"jsonrpc":"2.0","id":%d,"result":{' % id)
            OUT.flush()
            os._exit(0)
        case "unreadable":
            words = {"half": b'"\\ud83d"', "deep": b"[" * 5000 + b"]" * 5000, "bytes": b'"\xff"'}[arguments["how"]]
            OUT.write(b'{"jsonrpc":"2.0","id":%s,"result":{"x":%s}}\n' % (json.dumps(id).encode(), words))
            OUT.flush()
        case "close_stdout":
            OUT.flush()
            os.close(1)
        case "twice":
            text(id, "first")
            text(id, "second")
        case "wrong_id":
            text(id + 1000, "wrong")
            text([id], "wrong type")
        case "orphan":
            # Ends neither with its input nor with SIGTERM to its parent alone.
            orphan = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            text(id, str(orphan.pid))
        case "leave_behind":
            text(id, str(leave_behind(arguments["count"])))
        case "pid":
            text(id, str(os.getpid()))
        case "env":
            text(id, json.dumps({"env": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "group": os.getpgrp()}))
        case "seen":
            text(id, json.dumps(seen))
        case "changed":
            changed()
            text(id, "changed")
        case _:
            refuse(id, -32602, f"Unknown tool: {name}")


def leave_behind(count):
    """Helpers whose parent ends before them. Returns once all have ended."""
    ours, theirs = os.pipe()
    for _ in range(count):
        parent = os.fork()
        if parent == 0:
            between = os.getpid()
            if os.fork() == 0:
                os.setsid()
                while os.getppid() == between:
                    os.sched_yield()
            os._exit(0)
        os.waitpid(parent, 0)
    os.close(theirs)
    while os.read(ours, 1):
        pass
    os.close(ours)
    return count


def put_question(id, method, times):
    question = f"q{len(seen)}"
    asked[question] = (id, method, times)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    params = {"message": "Your name?", "requestedSchema": schema}
    write({"jsonrpc": "2.0", "id": question, "method": method, "params": params})


def changed():
    if era == "legacy":
        notify("notifications/tools/list_changed", {})
    for id in subscriptions:
        notify("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION: id}})


def request(id, method, params):
    global era
    is_modern = "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {})
    if era is None:
        era = "modern" if is_modern else "legacy"
    if era == "modern" and not is_modern:
        return refuse(id, -32022, data={"supported": [MODERN]})
    info = {"name": "stdio-fixture", "version": "1"}
    if method == "initialize" and era == "legacy":
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        version = params.get("protocolVersion")
        return answer(id, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, "instructions": "do"})
    if method == "server/discover" and era == "modern":
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return answer(id, {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}, "ttlMs": 0,
                           "cacheScope": "private", "_meta": meta})
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS.split()]
        return answer(id, {"tools": tools, **({"ttlMs": 0, "cacheScope": "private"} if era == "modern" else {})})
    if method == "tools/call":
        return call(id, params)
    if method == "subscriptions/listen" and era == "modern":
        subscriptions.append(id)
        return notify("notifications/subscriptions/acknowledged",
                      {"_meta": {SUBSCRIPTION: id}, "notifications": {"toolsListChanged": True}})
    if method in ("ping", "logging/setLevel"):
        return answer(id, {})
    if MODE != "deaf":
        refuse(id, -32601, "Method not found")


def response(message):
    """The client's answer to a question: the call that asked gets it."""
    id, method, times = asked.pop(message["id"], (None, None, 0))
    if times > 1:
        return put_question(id, method, times - 1)
    if id is not None:
        said = message["result"] if "result" in message else {"refused": message["error"]["code"]}
        text(id, (said.get("content") or {}).get("name") or json.dumps(said))


def notification(method, params):
    if method == "notifications/cancelled":
        for nonce, id in list(held.items()):
            if id == params["requestId"]:
                del held[nonce]


def main():
    if MODE == "dies" and not os.path.exists("".join(sys.argv[2:])):
        sys.exit("the server cannot start")
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        seen.append(message)
        if MODE == "strict" and seen[0].get("method") != "initialize":
            sys.exit("expected initialize")
        if "method" not in message:
            response(message)
        elif "id" in message:
            request(message["id"], message["method"], message.get("params") or {})
        else:
            notification(message["method"], message.get("params") or {})
    while MODE == "stubborn":
        signal.pause()


main()
