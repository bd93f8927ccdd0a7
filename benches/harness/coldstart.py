"""Cold start: from the start of a program to its first answer."""

import json
import socket
import sys
import time

from .processes import free_port, resident_kib

PATIENCE_SECONDS = 30


def measure(targets, name):
    """Starts a target and calls it until it answers. Its memory after that is its idle memory."""
    port = free_port()
    command, env = targets.command(name, port)
    call = request(port)
    began = time.perf_counter()
    process = targets.processes.start(name, command, env=env)
    while not answers(port, call):
        if time.perf_counter() - began > PATIENCE_SECONDS or process.poll() is not None:
            sys.exit(f"error: {name} does not answer; see its log")
        time.sleep(0.0005)
    took = (time.perf_counter() - began) * 1000
    rss = resident_kib(process.pid)
    targets.processes.end(process)
    return {"label": name, "mode": "cold-start", "concurrency": 1, "ms": round(took, 2), "rss_kb": rss, "errors": 0}


def answers(port, call):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(call)
            return connection.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def request(port):
    """A call of `fast`, as HTTP/1.1."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "benches", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "fast", "arguments": {"nonce": "x"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: fast",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
