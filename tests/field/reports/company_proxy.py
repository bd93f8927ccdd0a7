"""Area: deployment
Source: apify/mcpc#4, punkpeye/mcp-remote#124
Met: Behind a company's proxy, programs did not reach servers on the internet, although HTTPS_PROXY was set.
First try: fail: the variables were ignored, and the server was called directly.
Verdict: Mended: raincheck reaches a server that speaks https by CONNECT through the proxy of HTTPS_PROXY or ALL_PROXY, unless NO_PROXY names it, and says in an error what the proxy answered. So do its requests for keys of tokens and for traces.
"""

import base64
import select
import socket
import ssl
import subprocess
import threading

from servers import HttpServer, LegacyServer, reply


class TlsServer(LegacyServer):
    def __init__(self, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        super().__init__()

    def serve(self, connection):
        try:
            super().serve(self.context.wrap_socket(connection, server_side=True))
        except OSError:
            pass


class Proxy(HttpServer):
    """Connects every name to the server, for who says the password."""

    def __init__(self, server):
        self.server, self.asked = server, []
        super().__init__()

    def on(self, connection, method, path, headers, body):
        self.asked.append((method, path))
        if headers.get("proxy-authorization") != "Basic " + base64.b64encode(b"ada:pw").decode():
            return reply(connection, b"", kind=None, status="407 Proxy Authentication Required")
        with socket.create_connection(("127.0.0.1", self.server.port)) as there:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {connection: there, there: connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    if not (data := end.recv(65536)):
                        return False
                    ends[end].sendall(data)


def test(field):
    key, certificate = field.dir / "key.pem", field.dir / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=mcp.example", "-addext", "subjectAltName=DNS:mcp.example", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    proxy = Proxy(TlsServer(certificate, key))
    config = f'[upstream]\nurl = "https://mcp.example/mcp"\n[upstream.tls]\nroots = "{certificate}"\n'

    def called(**env):
        raincheck = field.raincheck(config=config, env=env)
        return raincheck, raincheck.modern("tools/call", {"name": "slow"})

    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        _, answer = called(**{name: f"http://ada:pw@127.0.0.1:{proxy.port}"})
        assert answer.answer(7)["result"]["content"][0]["text"].startswith("run "), answer.text
    assert set(proxy.asked) == {("CONNECT", "mcp.example:443")}, proxy.asked
    # A wrong password is said, and not repeated.
    raincheck, answer = called(HTTPS_PROXY=f"http://ada:s3cret@127.0.0.1:{proxy.port}")
    assert "upstream_unreachable" in answer.text and "407" in raincheck.log(), answer.text
    assert "s3cret" not in raincheck.log() + answer.text
    unused = Proxy(None)
    _, answer = called(HTTPS_PROXY=f"http://127.0.0.1:{unused.port}", NO_PROXY="example")
    assert "upstream_unreachable" in answer.text and not unused.asked, answer.text
    # Nothing listens there: what a proxy of another kind needs is said at the start.
    raincheck = field.raincheck(config=config, env={"HTTPS_PROXY": "socks5://127.0.0.1:1"}, ready=False)
    assert raincheck.child.wait(10) != 0 and "HTTPS_PROXY" in raincheck.log(), raincheck.log()
    # A server on this machine is not behind it.
    plain = LegacyServer()
    raincheck = field.raincheck("--upstream", plain.url, env={"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"})
    assert raincheck.modern("tools/call", {"name": "slow"}).status == 200
