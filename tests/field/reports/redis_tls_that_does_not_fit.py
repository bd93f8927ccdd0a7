"""Area: Redis
Source: redis/redis#8404
Met: Redis had a certificate of its own making, of a private authority, or for another name, or asked its clients for one, and the client said only that the handshake failed.
First try: fail: of a certificate that is its own authority (what `openssl req -x509` makes) it is said `Other(OtherError(CaUsedAsEndEntity))`, with the advice to set store.tls.roots, which are set; for the server behind raincheck the same is told in plain words. Of a Redis that asks for a client's certificate it is said "broken pipe (if it speaks TLS, write rediss://)", which stands there, or "received fatal alert: CertificateRequired" without the setting.
Verdict: Mended: an authority shown as a certificate is told in plain words, for Redis as for servers, and a Redis that ends connections over TLS is told with the settings of a certificate of ours.
"""

import os
import subprocess

from house import RAINCHECK, answers, free_port, until
from servers import LegacyServer


def openssl(field, *words):
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, cwd=field.dir, timeout=20)
    assert done.returncode == 0, done.stderr


def test(field):
    server = LegacyServer()
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    openssl(field, "req", "-x509", *key, "-keyout", "self.key", "-out", "self.pem", "-days", "9", "-subj", "/CN=localhost", "-addext", names)
    openssl(field, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "9", "-subj", "/CN=private")
    for name, extension in (("good", names), ("other", "subjectAltName=DNS:redis.other.example"), ("bare", ""), ("client", "subjectAltName=DNS:raincheck")):
        openssl(field, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=localhost")
        field.write(f"{name}.ext", f"basicConstraints=CA:FALSE\n{extension}\n")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9", "-extfile", f"{name}.ext"]
        openssl(field, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    said = {}
    cases = {
        "private authority": ("good", "ca", "localhost", "no", ""),
        "an address": ("good", "ca", "127.0.0.1", "no", ""),
        "our certificate": ("good", "ca", "localhost", "yes", "client"),
        "nothing trusted": ("good", None, "localhost", "no", ""),
        "another name": ("other", "ca", "localhost", "no", ""),
        "no name": ("bare", "ca", "localhost", "no", ""),
        "its own authority": ("self", "self", "localhost", "no", ""),
        "asks for ours": ("good", "ca", "localhost", "yes", ""),
    }
    for case, (shown, roots, host, asks, ours) in cases.items():
        port = free_port()
        tls = ["--tls-port", str(port), "--tls-cert-file", f"{shown}.pem", "--tls-key-file", f"{shown}.key", "--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", asks]
        field.start("redis-server", "--port", "0", "--save", "", "--dir", str(field.dir), *tls, log="redis", stdout=subprocess.DEVNULL)
        until("redis answers", lambda port=port: answers(port))
        settings = '[store]\nnamespace = "n"\n[store.tls]\n' + (f'roots = "{field.dir}/{roots}.pem"\n' if roots else "")
        settings += f'certificate = "{field.dir}/{ours}.pem"\nkey = "{field.dir}/{ours}.key"\n' if ours else ""
        command = [RAINCHECK, "check", "--upstream", server.url, "--store", f"rediss://{host}:{port}", *field.config(settings)]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": str(field.dir)}, timeout=20)
        line = [line for line in done.stdout.splitlines() if " store " in line][0]
        said[case] = line
        assert line.split()[0] == ("ok" if case in ("private authority", "an address", "our certificate") else "WRONG"), f"{case}: {line}"
    assert "store.tls.roots" in said["nothing trusted"]
    assert "redis.other.example" in said["another name"] and "localhost" in said["no name"]
    wrong = []
    # As for the server behind raincheck: what is wrong with the certificate, in words.
    wrong += [said["its own authority"]] * ("CA:TRUE" not in said["its own authority"])
    wrong += [said["asks for ours"]] * ("store.tls.certificate" not in said["asks for ours"] or "write rediss://" in said["asks for ours"])
    assert not wrong, "\n".join(wrong)
