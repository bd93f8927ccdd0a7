"""A server whose tool answers at once with the sentence that raincheck has for clients whose clock ends: told.py PORT error|result. As
an error of JSON-RPC, as raincheck sends it, or as a result with `isError`. It speaks MCP until 2025-11-25, and only what a call needs."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SENTENCE = (
    "Request timed out: quiet_compute is still running. Call quiet_compute again with the same arguments to wait for its result"
)
TOOL = {
    "name": "quiet_compute",
    "description": "Computes.",
    "inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}},
}
ERROR = {"error": {"code": -32001, "message": SENTENCE}}
RESULT = {"result": {"content": [{"type": "text", "text": SENTENCE}], "isError": True}}
PORT, HOW = int(sys.argv[1]), sys.argv[2]


def answer(asked):
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "told", "version": "1.0.0"}
            return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": [TOOL]}}
        case "tools/call":
            return ERROR if HOW == "error" else RESULT
        case "ping":
            return {"result": {}}
        case other:
            return {"error": {"code": -32601, "message": f"Method not found: {other}"}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in asked or "method" not in asked:
            return self.say(202, "")
        self.say(200, json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | answer(asked)))

    def do_GET(self):
        self.say(405, "")

    def do_DELETE(self):
        self.say(200, "")

    def say(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
