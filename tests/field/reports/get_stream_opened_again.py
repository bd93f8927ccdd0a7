"""Area: clients
Source: render-oss/render-mcp-server#26
Met: A client whose GET stream had ended opened it again at once, was told that the session had one already, and gave the server up.
First try: pass
Verdict: The end of a client's GET stream ends the one at the server at once, so the next one is taken; in front of a modern server and of a program the newest stream
    counts, even while an older one is still open, and each change comes on one stream only.
"""

import contextlib
import json
import socket
import threading

from house import until
from servers import LegacyServer, ModernServer, STDIO, content, event, reply

CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


class Legacy(LegacyServer):
    """Allows one stream for a session, as the TypeScript SDK does."""

    version = "2025-11-25"
    capabilities = {"tools": {"listChanged": True}}

    def __init__(self):
        self.open, self.refused = {}, 0
        super().__init__()

    def on(self, connection, method, path, headers, body):
        if method != "GET":
            return super().on(connection, method, path, headers, body)
        session = headers.get("mcp-session-id")
        if session in self.open:
            self.refused += 1
            return reply(connection, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Conflict"}}, status="409 Conflict")
        self.open[session] = connection
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: open\n\n")
        with contextlib.suppress(OSError):
            connection.recv(1)
        del self.open[session]
        return False

    def tool(self, message, connection, headers):
        for stream in self.open.values():
            stream.sendall(event(CHANGED).encode())
        return content("changed")


class Modern(ModernServer):
    capabilities = Legacy.capabilities

    def __init__(self):
        self.open = {}
        super().__init__()

    def on(self, connection, method, path, headers, body):
        message = json.loads(body) if method == "POST" else {}
        if message.get("method") != "subscriptions/listen":
            return super().on(connection, method, path, headers, body)
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        params = {"notifications": message["params"]["notifications"], **about}
        connection.sendall(event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}).encode())
        self.open[message["id"]] = (connection, about)
        with contextlib.suppress(OSError):
            connection.recv(1)
        del self.open[message["id"]]
        return False

    def tool(self, message, connection, headers):
        for stream, about in list(self.open.values()):
            stream.sendall(event({**CHANGED, "params": about}).encode())
        return content("changed")


class Stream:
    def __init__(self, session):
        head = {"host": f"127.0.0.1:{session.raincheck.port}", "accept": "text/event-stream", **session.headers}
        self.connection = socket.create_connection(("127.0.0.1", session.raincheck.port), 5)
        self.connection.sendall("\r\n".join(["GET /mcp HTTP/1.1", *[f"{name}: {value}" for name, value in head.items()], "", ""]).encode())
        self.raw = b""
        threading.Thread(target=self.read, daemon=True).start()
        until("the stream is answered", lambda: b"\r\n\r\n" in self.raw, 5)
        assert b" 200 " in self.raw, self.raw

    def read(self):
        self.connection.settimeout(30)
        with contextlib.suppress(OSError):
            while read := self.connection.recv(65536):
                self.raw += read

    def changes(self):
        return self.raw.count(b"tools/list_changed")

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


CHANGING = STDIO.replace('"tools": {}', '"tools": {"listChanged": True}').replace('        time.sleep((message', '        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})\n        time.sleep((message')


def test(field):
    program = field.write("server.py", CHANGING)
    for server in (Legacy(), Modern(), None):
        raincheck = field.raincheck(*(["--upstream", server.url] if server else ["--", "python3", program]))
        for version in ("2025-06-18", "2025-11-25"):
            session = raincheck.session(version)
            stream = Stream(session)
            for _ in range(3):
                stream.close()
                if isinstance(server, Legacy):
                    # Two connections have no order between them: only the end that the server has seen frees the session's place.
                    until("the server's stream ends, too", lambda: not server.open, 2)
                stream = Stream(session)
            if server:
                until("the server has a stream", lambda: len(server.open) >= 1, 5)
            before = stream.changes()
            session.call("slow")
            until("the change is told", lambda: stream.changes() > before, 5)
            if not isinstance(server, Legacy):
                newest = Stream(session)
                until("the newest stream counts", lambda: session.call("slow") and newest.changes(), 5)
                # Whatever a new stream is told to begin with, one change is one message, on one stream.
                counts = None
                while counts != (counts := (stream.changes(), newest.changes())):
                    threading.Event().wait(0.3)
                session.call("slow")
                until("the change is told", lambda: newest.changes() == counts[1] + 1, 5)
                threading.Event().wait(0.3)
                assert (stream.changes(), newest.changes()) == (counts[0], counts[1] + 1)
                newest.close()
            stream.close()
        assert not (isinstance(server, Legacy) and server.refused), server.refused
