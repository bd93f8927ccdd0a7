"""Area: servers
Source: snoyberg/http-client#521
Met: A server or a gateway sends 103 or 100 before the response, and a proxy takes that for the response or loses the rest; clients that wait for 100 before they send a body hang
where a proxy never says it (haga-rak/fluxzy.core#625).
First try: pass
Verdict: Interim responses of the server are read over, in streams and JSON; a client that waits for 100 gets it at once from raincheck, and the server never sees the wait.
"""

import json
import socket

from servers import LegacyServer, event, reply


class Server(LegacyServer):
    def write(self, connection, out, message, headers):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\nmcp-session-id: wrong\r\n\r\n")
        if self.runs % 2:
            reply(connection, event(out), "text/event-stream", headers=headers)
        else:
            reply(connection, out, headers=headers)


def waits(raincheck, headers):
    """A client that sends its body only after the server said that it may."""
    body = json.dumps({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "slow", "arguments": {"pad": "x" * 2000}}}).encode()
    head = {"host": f"127.0.0.1:{raincheck.port}", "expect": "100-continue", "content-type": "application/json", "content-length": len(body), "connection": "close"}
    head |= {"accept": "application/json, text/event-stream"} | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection(("127.0.0.1", raincheck.port), 5) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 100"), "no 100"
        connection.sendall(body)
        got = b""
        while read := connection.recv(65536):
            got += read
    return got


def test(field):
    server = Server()
    raincheck = field.raincheck("--upstream", server.url, config='[tasks]\ngrace_window = "100ms"\n')
    session = raincheck.session()
    assert session.headers["mcp-session-id"] != "wrong"
    for _ in range(2):
        assert "result" in raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False).answer(7)
        task = raincheck.modern("tools/call", {"name": "slow", "arguments": {"s": 0.2}}).answer(7)["result"]["taskId"]
        assert raincheck.finished(task)["result"]["status"] == "completed"
        assert "result" in session.call("slow")
        got = waits(raincheck, session.headers)
        assert b"200 OK" in got and b'"result"' in got, got
    assert not any("expect" in headers for _, _, headers in server.seen)
