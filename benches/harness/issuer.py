"""An issuer of tokens: a key, a server for its public half, and one token."""

import base64
import http.server
import json
import subprocess
import threading
import time

ISSUER = "http://issuer.test"
AUDIENCE = "http://raincheck.test"


class Issuer:
    """Signs one token (RS256, with openssl), and serves the key that tells it is good."""

    def __init__(self, folder):
        self.key = folder / "issuer.pem"
        self._openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self.key))
        modulus = self._openssl("rsa", "-in", str(self.key), "-noout", "-modulus").decode().split("=")[1].strip()
        jwk = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1"}
        jwk.update({"n": encoded(bytes.fromhex(modulus)), "e": encoded(b"\x01\x00\x01")})
        self.port = serve(json.dumps({"keys": [jwk]}).encode())
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "benches", "iat": now, "exp": now + 24 * 3600}
        self.token = self._signed({"alg": "RS256", "typ": "JWT", "kid": "1"}, claims)

    @property
    def settings(self):
        """What raincheck needs to know of this issuer."""
        jwks = f"http://127.0.0.1:{self.port}/jwks.json"
        return f'[[auth.jwt]]\nissuer = "{ISSUER}"\njwks = "{jwks}"\naudience = "{AUDIENCE}"\n'

    def _signed(self, head, claims):
        text = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self._openssl("dgst", "-sha256", "-sign", str(self.key), "-binary", given=text.encode())
        return f"{text}.{encoded(signature)}"

    @staticmethod
    def _openssl(*arguments, given=None):
        run = subprocess.run(["openssl", *arguments], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        return run.stdout


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def serve(body):
    """Answers every GET with the body, on a thread that ends with this program. Returns the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]
