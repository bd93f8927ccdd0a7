"""Area: deployment
Source: modelcontextprotocol/inspector#743
Met: A server behind a certificate of the company's own authority could not be reached, although the machine trusts it; people turned the check off.
First try: pass
Verdict: `upstream.tls.roots` and SSL_CERT_FILE are trusted; without them the error and `raincheck check` name the certificate as the cause, also when it is of
    another host or has expired, and no call is sent.
"""

import os
import ssl
import subprocess
import threading

import house
from house import free_port, until
from servers import LegacyServer


class Secure(LegacyServer):
    def __init__(self, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        super().__init__()
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def serve(self, connection, address=None):
        try:
            connection = self.context.wrap_socket(connection, server_side=True)
        except OSError:
            connection.close()
            return
        super().serve(connection)


def openssl(field, *words):
    subprocess.run(["openssl", *words], cwd=field.dir, check=True, capture_output=True, timeout=20)


def issue(field, name, host, *more):
    openssl(field, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={host}")
    field.write(f"{name}.ext", f"subjectAltName=DNS:{host}\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n")
    openssl(field, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem", "-extfile", f"{name}.ext", *(more or ("-days", "30")))
    return str(field.dir / f"{name}.pem"), str(field.dir / f"{name}.key")


def test(field):
    openssl(field, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=Our Company CA", "-addext", "basicConstraints=critical,CA:TRUE")
    authority = str(field.dir / "ca.pem")
    server = Secure(*issue(field, "good", "localhost"))
    roots = f'[upstream.tls]\nroots = "{authority}"\n'
    for how in ({"config": roots}, {"env": {"SSL_CERT_FILE": authority}}):
        raincheck = field.raincheck("--upstream", server.url, **how)
        assert raincheck.session().call("slow")["result"]["content"], how
        assert raincheck.modern("tools/call", {"name": "slow"}).answer(7)["result"]["content"], how
    ran = server.runs
    other = Secure(*issue(field, "other", "tools.example.com"))
    old = Secure(*issue(field, "old", "localhost", "-days", "-1"))
    alone = {"a stranger": (server, None), "another host": (other, roots), "expired": (old, roots)}
    for name, (bad, config) in alone.items():
        raincheck = field.raincheck("--upstream", bad.url, config=config)
        answer = raincheck.modern("tools/call", {"name": "slow"}).answer(7)
        assert answer["error"]["data"]["io.raincheck/effect"] == "none", (name, answer)
        until(f"{name}: the log says so", lambda raincheck=raincheck: "certificate" in raincheck.log(), 5)
        options = ["check", "--listen", f"127.0.0.1:{free_port()}", "--store", "memory:", *field.config(config), "--upstream", bad.url]
        found = subprocess.run([house.RAINCHECK, *options], env={"PATH": os.environ["PATH"], "HOME": str(field.dir)}, capture_output=True, text=True, timeout=20, check=False)
        assert found.returncode == 1 and "certificate" in found.stdout, (name, found.stdout)
    assert server.runs == ran and not other.runs and not old.runs
    assert threading.active_count() < 50
