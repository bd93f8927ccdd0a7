"""Area: servers
Source: modelcontextprotocol/python-sdk#1356
Met: U+2028 and its like stand unescaped in a result; readers that take them for line ends cut the message there and the call hangs (modelcontextprotocol/java-sdk#1136);
others know one kind of line end only (envoyproxy/ai-gateway#1398).
First try: pass
Verdict: Only CR, LF and CRLF end a line of a stream, and LF one of a program, wherever the pieces are cut; the text arrives to the character in calls and tasks of both eras.
"""

import json

from servers import LegacyServer

TEXT = "one\u2028two\u2029three\u0085four\x7ffive\u00a0six \ufeff seven \U0001f600"


class Server(LegacyServer):
    """Writes its events as a text says, with JSON that is not escaped."""

    shape = "{0}"

    def tool(self, message, connection, headers):
        super().tool(message, connection, headers)
        return {"content": [{"type": "text", "text": TEXT}]}

    def write(self, connection, out, message, headers):
        data = self.shape.format(json.dumps(out, ensure_ascii=False)).encode()
        head = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **headers}
        connection.sendall(("HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + "\r\n").encode())
        for start in range(0, len(data), 7):
            part = data[start : start + 7]
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.sendall(b"0\r\n\r\n")


SHAPES = {
    "LF": "event: message\ndata: {0}\n\n",
    "CRLF": "event: message\r\nid: 1\r\ndata: {0}\r\n\r\n",
    "CR": "event: message\rdata: {0}\r\r",
    "no space": "event:message\ndata:{0}\n\n",
    "order": "data: {0}\nid\nretry: soon\nunknown: x\nevent: message\n\n",
    "comments": ":\n: ping\n\n:\n\ndata: {0}\n: end\n\n",
}

PROGRAM = """
import json, sys
sys.stdout.reconfigure(encoding="utf-8", newline="\\n")
TEXT = json.loads(TEXT_JSON)
for line in sys.stdin.buffer:
    m = json.loads(line)
    if "id" not in m or "method" not in m:
        continue
    about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
    tools = {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
    result = {"initialize": about, "tools/list": tools, "tools/call": {"content": [{"type": "text", "text": TEXT}]}}.get(m["method"])
    out = {"jsonrpc": "2.0", "id": m["id"]} | ({"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}})
    print(json.dumps(out, ensure_ascii=False), flush=True)
"""


def test(field):
    program = field.write("server.py", PROGRAM.replace("TEXT_JSON", repr(json.dumps(TEXT))))
    cases = {"a program": field.raincheck("--", "python3", program)}
    for name, shape in SHAPES.items():
        server = Server()
        server.shape = shape
        cases[name] = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
    for name, raincheck in cases.items():
        got = [
            raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)["result"],
            raincheck.session().ask("tools/call", {"name": "slow", "arguments": {}}),
        ]
        events = got[1].text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        read = [line.partition(":")[2] for line in events if line.startswith("data:") and "result" in line] or [got[1].text]
        for result in (got[0], json.loads(read[0])["result"]):
            assert result["content"][0]["text"] == TEXT, (name, result)
        if name != "a program":
            task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
            assert raincheck.finished(task)["result"]["result"]["content"][0]["text"] == TEXT, name
