"""Servers whose every byte a report may choose: subclass one and override what the report is about."""

import contextlib
import json
import socket
import threading
import time


class HttpServer:
    """An HTTP server of raw sockets. `on` writes its own answer; False ends the connection."""

    def __init__(self, host="127.0.0.1", port=0):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/mcp"
        threading.Thread(target=self.accept, daemon=True).start()

    def on(self, connection, method, path, headers, body):
        raise NotImplementedError

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as read:
            try:
                while line := read.readline():
                    method, path, _ = line.decode().split(" ", 2)
                    headers = {}
                    while text := read.readline().strip():
                        name, _, value = text.decode("latin1").partition(":")
                        headers[name.lower()] = value.strip()
                    if self.on(connection, method, path, headers, self.body(read, headers)) is False:
                        return
            except (OSError, ValueError):
                return

    @staticmethod
    def body(read, headers):
        if "chunked" not in headers.get("transfer-encoding", ""):
            return read.read(int(headers.get("content-length", 0)))
        body = b""
        while count := int(read.readline().split(b";")[0], 16):
            body += read.read(count)
            read.readline()
        read.readline()
        return body


def reply(connection, body, kind="application/json", status="200 OK", headers=None):
    """Writes one HTTP response with a length."""
    data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = {"content-type": kind, "content-length": len(data), **(headers or {})}
    lines = [f"{name}: {value}" for name, value in head.items() if value is not None]
    connection.sendall("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + data)


def event(message):
    """One event of a stream."""
    return f"event: message\ndata: {json.dumps(message)}\n\n"


def content(text):
    return {"content": [{"type": "text", "text": text}]}


class LegacyServer(HttpServer):
    """A server of 2025 over Streamable HTTP. `seen`: the method, message and headers of what came."""

    version = "2025-06-18"
    capabilities = {"tools": {}}
    tools = [{"name": "slow", "inputSchema": {"type": "object"}}]

    def __init__(self, *where):
        self.seen, self.runs, self.lock = [], 0, threading.Lock()
        super().__init__(*where)

    def tool(self, message, connection, headers):
        """The result of a call. The default takes as many seconds as the argument `s` says."""
        with self.lock:
            self.runs += 1
            run = self.runs
        time.sleep((message["params"].get("arguments") or {}).get("s", 0))
        return content(f"run {run}")

    def result(self, message, connection, headers):
        """The result of a request. None: there is no such method. False: the connection ends."""
        match message["method"]:
            case "initialize":
                return {"protocolVersion": self.version, "capabilities": self.capabilities, "serverInfo": {"name": "fake", "version": "1"}}
            case "ping":
                return {}
            case "tools/list":
                return {"tools": self.tools}
            case "tools/call":
                return self.tool(message, connection, headers)
        return None

    def write(self, connection, out, message, headers):
        reply(connection, event(out), "text/event-stream", headers=headers)

    def on(self, connection, method, path, headers, body):
        if method == "GET":
            return reply(connection, b"", status="405 Method Not Allowed")
        if method == "DELETE":
            self.seen.append(("DELETE", None, headers))
            return reply(connection, b"")
        message = json.loads(body)
        self.seen.append((message.get("method", "answer"), message, headers))
        if "id" not in message or "method" not in message:
            return reply(connection, b"", kind=None, status="202 Accepted")
        result = self.result(message, connection, headers)
        if result is False:
            return False
        head = {}
        if message["method"] == "initialize":
            head["mcp-session-id"] = f"s{len(self.seen)}"
        out = {"jsonrpc": "2.0", "id": message["id"]}
        out |= {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        return self.write(connection, out, message, head)


class ModernServer(LegacyServer):
    """A server of 2026-07-28 only."""

    def result(self, message, connection, headers):
        match message["method"]:
            case "initialize":
                return None
            case "server/discover":
                about = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities, "serverInfo": {"name": "fake", "version": "1"}}
                return {"resultType": "complete", **about}
        result = super().result(message, connection, headers)
        return {"resultType": "complete", **result} if isinstance(result, dict) else result

    def write(self, connection, out, message, headers):
        reply(connection, out)


class Relay:
    """Passes bytes between its port and `to`, which may change: connections that are open stay where they are. A report overrides what is special."""

    def __init__(self, port):
        self.to, self.lines = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
                self.lines += 1
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(self.lines, source, target), daemon=True).start()

    def pump(self, line, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.passes(line, data, target)
        self.ended(source, target)

    def passes(self, line, data, target):
        """Passes bytes of this connection, counted from 1."""
        target.sendall(data)

    def ended(self, source, target):
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


STDIO = '''
import json, sys, time
def say(message): sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def result(message):
    method = message["method"]
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        time.sleep((message["params"].get("arguments") or {}).get("s", 0))
        return {"content": [{"type": "text", "text": "done"}]}
    return {}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        say({"jsonrpc": "2.0", "id": message["id"], "result": result(message)})
'''
"""The program of a plain legacy server on a pipe, for `Field.write`."""
