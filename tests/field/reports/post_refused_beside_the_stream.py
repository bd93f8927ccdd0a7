"""Area: servers
Source: Azure-Samples/remote-mcp-functions-dotnet#14
Met: The event stream of a server of HTTP+SSE is open, and the POST to its endpoint is refused with 500 and a reason (no such stream on this instance); clients hang until a
timeout or show nothing of the reason (modelcontextprotocol/java-sdk#546 asks for it at once).
First try: fail: a refused `initialize` ends as "The server could not be reached", although the server answered with a status and a reason, and a call that is refused with 404
says neither; a call that is refused with 500 or 400 says both.
Verdict: Mended: a refused POST of HTTP+SSE ends `initialize` and calls with the server's status and words.
"""

import json
import time

from servers import HttpServer, content, event, reply

WHY = "SSE connection not established on this instance"


class Server(HttpServer):
    def __init__(self, status, refused):
        self.status, self.refused, self.streams = status, refused, []
        super().__init__()
        self.url = self.url.replace("/mcp", "/sse")

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            self.streams.append(connection)
            endpoint = f"event: endpoint\ndata: /messages?{len(self.streams) - 1}\n\n"
            connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{endpoint}".encode())
            time.sleep(30)
            return False
        if path == "/sse":
            return reply(connection, "Method Not Allowed", "text/plain", "405 Method Not Allowed")
        message = json.loads(body)
        if message.get("method") == self.refused:
            return reply(connection, WHY, "text/plain", self.status)
        reply(connection, "Accepted", "text/plain", "202 Accepted")
        about = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
        tools = {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
        result = {"initialize": about, "ping": {}, "tools/list": tools, "tools/call": content("done")}.get(message.get("method"))
        if result is not None and "id" in message:
            self.streams[int(path.partition("?")[2])].sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        return None


def test(field):
    failed = []
    for status in ("500 Internal Server Error", "404 Not Found", "400 Bad Request"):
        for refused in ("initialize", "tools/call"):
            config = f'[upstream]\nurl = "{Server(status, refused).url}"\ntransport = "sse"\n'
            raincheck = field.raincheck(config=config)
            answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, seconds=8)
            if not answer.status:
                failed.append(f"{refused}, {status}: no answer within 8 s")
                continue
            error = answer.answer(7)["error"]
            if status[:3] not in error["message"] or WHY not in error["message"]:
                failed.append(f"{refused}, {status}: {error['message']} {error.get('data')}")
            raincheck.child.terminate()
    assert not failed, "\n".join(failed)
