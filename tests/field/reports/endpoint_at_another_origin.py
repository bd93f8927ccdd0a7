"""Area: servers
Source: modelcontextprotocol/python-sdk#965
Met: A server of HTTP+SSE behind another name says an `endpoint` with the address that it knows for itself, such as 0.0.0.0 or localhost, and clients refuse it, hang
(modelcontextprotocol/python-sdk#447) or say something that leads nobody to the cause.
First try: fail: nothing goes to the other origin, and the log and `raincheck check` name the reason; but a client reads "HTTP 405 Method Not Allowed" of the try of another
transport, or with transport = "sse" only "not a valid MCP message".
Verdict: Mended: clients read that the endpoint is at another origin than `upstream.url`, whichever transport was tried first; nothing is sent there.
"""

import os
import subprocess

from house import RAINCHECK
from servers import HttpServer, reply


class Server(HttpServer):
    """Only an event stream, and an endpoint at another origin."""

    def __init__(self, host):
        self.other, self.posts = host, 0
        super().__init__()
        self.url = self.url.replace("/mcp", "/sse")

    def on(self, connection, method, path, headers, body):
        if method != "GET":
            self.posts += path != "/sse"
            return reply(connection, "Method Not Allowed", "text/plain", "405 Method Not Allowed")
        endpoint = f"event: endpoint\ndata: http://{self.other}:{self.port}/messages?session=1\n\n"
        connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{endpoint}".encode())
        connection.recv(1)
        return False


def test(field):
    failed = []
    for host in ("localhost", "0.0.0.0"):
        server = Server(host)
        for transport in ("auto", "sse"):
            config = f'[upstream]\nurl = "{server.url}"\ntransport = "{transport}"\n'
            raincheck = field.raincheck(config=config)
            answer = raincheck.modern("tools/call", {"name": "slow", "arguments": {}}, tasks=False, seconds=10)
            assert answer.status, "no answer within 10 s"
            error = answer.answer(7)["error"]
            if "origin" not in error["message"] and "endpoint" not in error["message"]:
                failed.append(f"{host}, {transport}: a client reads: {error['message']}")
            log = raincheck.log()
            if "origin" not in log and "endpoint" not in log:
                failed.append(f"{host}, {transport}: the log says nothing of it")
            raincheck.child.terminate()
            environment = {"PATH": os.environ["PATH"], "HOME": str(field.dir)}
            check = [RAINCHECK, "check", "--store", "memory:", *field.config(config)]
            said = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=20, check=False)
            if "origin" not in said.stdout + said.stderr:
                failed.append(f"{host}, {transport}: `raincheck check` says: {said.stdout[-400:]}{said.stderr[-400:]}")
        assert server.posts == 0, "something was sent to the other origin"
    assert not failed, "\n".join(failed)
