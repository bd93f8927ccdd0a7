"""Area: clients
Source: topcheer/ggcode#2490
Met: A user broke a call off or its time was over, and nothing told the server, which worked on for nobody and did the work once more at the next try.
First try: pass
Verdict: Clients that close in the middle of a body, right behind a request or without reading the answer leave nothing behind: a modern call is cancelled at the server, a call on a session
    runs on, and raincheck serves the next client.
"""

import contextlib
import json
import socket
import struct
import threading

from house import until
from servers import LegacyServer, ModernServer, content


class Modern(ModernServer):
    """Notices that its client has gone."""

    def __init__(self):
        self.left, self.lock2 = 0, threading.Lock()
        super().__init__()

    def tool(self, message, connection, headers):
        connection.settimeout(3)
        with contextlib.suppress(TimeoutError):
            if connection.recv(1, socket.MSG_PEEK) == b"":
                with self.lock2:
                    self.left += 1
        connection.settimeout(None)
        return content("ran")


def send(raincheck, body, headers, how):
    data = json.dumps(body).encode()
    head = {"host": f"127.0.0.1:{raincheck.port}", "content-type": "application/json", "accept": "application/json, text/event-stream", "content-length": len(data), **headers}
    with socket.create_connection(("127.0.0.1", raincheck.port), 5) as connection:
        request = "\r\n".join(["POST /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode() + data
        connection.sendall(request[: len(request) - 20] if how == "half" else request)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        threading.Event().wait(0.15)


def test(field):
    modern = Modern()
    raincheck = field.raincheck("--upstream", modern.url)
    about = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": about}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow"}
    for how in ("close", "reset", "half") * 3:
        send(raincheck, call, headers, how)
    until("the server heard of six clients that left", lambda: modern.left == 6, 5)
    assert raincheck.modern("tools/list").answer(7)["result"]["tools"]

    legacy = LegacyServer()
    raincheck = field.raincheck("--upstream", legacy.url)
    session = raincheck.session()
    for how in ("close", "reset", "half") * 2:
        send(raincheck, {**call, "params": {"name": "slow", "arguments": {"s": 0.5}}}, session.headers, how)
    until("the calls ran", lambda: legacy.runs == 4, 5)
    assert session.call("slow")["result"]["content"]
    assert not [method for method, *_ in legacy.seen if method == "notifications/cancelled"]
