"""Area: clients
Source: modelcontextprotocol/java-sdk#848
Met: A proxy between client and server held the events of a stream back until its end, so progress and questions came when the call was over.
First try: pass
Verdict: Every stream that raincheck makes says `X-Accel-Buffering: no` and `Cache-Control: no-cache`; a stream of the server passes event by event, with the server's own headers.
"""

import concurrent.futures
import contextlib
import json
import socket
import time

from servers import STDIO, LegacyServer, ModernServer, content, event


class Slow(LegacyServer):
    version = "2025-11-25"

    def on(self, connection, method, path, headers, body):
        if b'"tools/call"' not in body:
            return super().on(connection, method, path, headers, body)
        message = json.loads(body)
        token = message["params"]["_meta"]["progressToken"]
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-accel-buffering: no\r\ncache-control: no-cache, no-transform\r\nconnection: close\r\n\r\n")
        for n in range(4):
            connection.sendall(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": n}}).encode())
            time.sleep(1)
        connection.sendall(event({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **content("ok")}}).encode())
        return False


class Modern(ModernServer):
    def on(self, connection, method, path, headers, body):
        return Slow.on(self, connection, method, path, headers, body) if b'"tools/call"' in body else super().on(connection, method, path, headers, body)


def timed(raincheck, body, headers):
    """The head of the response, and when its events came."""
    data = json.dumps(body).encode()
    head = {"host": f"127.0.0.1:{raincheck.port}", "content-type": "application/json", "accept": "application/json, text/event-stream", "content-length": len(data), "connection": "close", **headers}
    begun, raw, came = time.monotonic(), b"", []
    with socket.create_connection(("127.0.0.1", raincheck.port), 15) as connection, contextlib.suppress(OSError):
        connection.sendall("\r\n".join(["POST /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode() + data)
        while read := connection.recv(65536):
            came += [time.monotonic() - begun] * read.count(b'"progress":')
            raw += read
    return raw.partition(b"\r\n\r\n")[0].decode().lower(), came


def test(field):
    program = field.write("server.py", STDIO)
    params = {"name": "slow", "arguments": {"s": 4}, "_meta": {"progressToken": "t"}}
    about = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "slow"}
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        ways = []
        for upstream in (["--upstream", Slow().url], ["--upstream", Modern().url], ["--", "python3", program]):
            for config in (None, "[tasks]\ncompanion_tools = true\n"):
                raincheck = field.raincheck(*upstream, config=config)
                ways.append((upstream, config, "session", pool.submit(timed, raincheck, call, raincheck.session().headers)))
                ways.append((upstream, config, "modern", pool.submit(timed, raincheck, {**call, "params": {**params, "_meta": {**params["_meta"], **about}}}, modern)))
    for upstream, config, way, done in ways:
        head, came = done.result()
        if upstream[0] == "--" and "application/json" in head:
            continue  # Nothing was to be told before the answer.
        assert "text/event-stream" in head, (upstream, way, head)
        assert "x-accel-buffering: no" in head and "cache-control: no-cache" in head, (upstream, way, config, head)
        if upstream[0] == "--upstream":
            assert len(came) == 4 and came[0] < 1.5 and came[3] - came[0] > 2, (upstream, way, came)
