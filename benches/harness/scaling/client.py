"""A client of the protocol on one connection, for what loadgen does not do: held polls, subscriptions, cancels."""

import itertools
import json
import socket

MODERN = "2026-07-28"
ids = itertools.count(1)


class Client:
    """One connection to a raincheck. Requests are answered one after the other."""

    def __init__(self, port, headers=()):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.headers = "".join(f"{line}\r\n" for line in headers)
        self.unread = b""

    def send(self, method, params, name=""):
        """Sends a request and leaves its answer unread."""
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "scale", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        body = json.dumps({"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params})
        self.post(body, [f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}", *([f"Mcp-Name: {name}"] if name else [])])

    def post(self, body, headers=()):
        head = "".join(f"{line}\r\n" for line in headers) + self.headers
        text = (
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n{head}\r\n{body}"
        )
        self.connection.sendall(text.encode())

    def call(self, method, params, name=""):
        """The result of a request, which comes as JSON or as a stream of one answer."""
        self.send(method, params, name)
        return self.result()

    def result(self):
        _, body = self.answer()
        answer = json.loads(body)
        if "result" not in answer:
            raise RuntimeError(f"raincheck answered {answer}")
        return answer["result"]

    def answer(self):
        """Head and body of a response."""
        while b"\r\n\r\n" not in self.unread:
            self.read()
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if not lengths:
            raise RuntimeError(f"an answer without a length: {head}")
        length = int(lengths[0].split(b":")[1])
        while len(self.unread) < length:
            self.read()
        body, self.unread = self.unread[:length], self.unread[length:]
        return head, body

    def read(self):
        more = self.connection.recv(65536)
        if not more:
            raise RuntimeError("raincheck closed a connection")
        self.unread += more

    def create(self, tool, **arguments):
        """Creates a task. Returns its id."""
        return self.call("tools/call", {"name": tool, "arguments": arguments}, tool)["taskId"]

    def get(self, task):
        return self.call("tasks/get", {"taskId": task}, task)

    def cancel(self, task):
        return self.call("tasks/cancel", {"taskId": task}, task)

    def close(self):
        self.connection.close()
