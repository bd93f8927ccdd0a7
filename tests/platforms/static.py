#!/usr/bin/env python3
"""tests/platforms/static.py PROGRAM: a program that needs nothing but the kernel, in a folder that it takes for its root and that holds
nothing else than what a test puts there. Servers, Redis and the resolver are outside, in the same network.

tests/platforms/static.sh builds the program, and runs this in a network and with mounts of its own.
"""

import json
import os
import pathlib
import platform
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "field"))

from house import answers, free_port, until  # noqa: E402
from servers import ModernServer  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]).resolve(strict=True)
CHROOT = shutil.which("chroot")
# Emulated programs are slow.
PATIENCE = 60


class Root:
    """A folder with the program. What it runs ends with it."""

    def __init__(self, folder, files=None, proc=False):
        self.folder = folder
        folder.mkdir(mode=0o755)
        os.link(PROGRAM, folder / "raincheck")
        for name, text in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.running = []
        self.proc = folder / "proc"
        if proc:
            # As every container has it.
            self.proc.mkdir()
            subprocess.run(["mount", "--rbind", "/proc", self.proc], check=True)

    def command(self, *arguments):
        return [CHROOT, str(self.folder), "/raincheck", *arguments]

    def run(self, *arguments, env=None, limit=PATIENCE):
        """Runs a command to its end."""
        return subprocess.run(self.command(*arguments), env=env or {}, capture_output=True, text=True, timeout=limit, check=False)

    def start(self, *arguments, env=None):
        """Starts `raincheck run` with these arguments, and waits until it listens."""
        port = free_port()
        log = self.folder / f"log-{port}"
        with open(log, "wb") as output:
            options = ["run", "--listen", f"127.0.0.1:{port}", *arguments]
            child = subprocess.Popen(self.command(*options), env=env or {}, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.running.append(child)
        until(f"it listens: {log.read_text()}", lambda: child.poll() is not None or answers(port), PATIENCE)
        assert child.poll() is None, log.read_text()
        return Served(self, child, port, log)

    def end(self):
        for child in self.running:
            child.send_signal(signal.SIGTERM)
        for child in self.running:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self.proc.exists():
            subprocess.run(["umount", "--lazy", self.proc], check=True)


class Served:
    """A raincheck that serves. The client is another one, in the same root."""

    def __init__(self, root, child, port, log):
        self.root, self.child, self.port, self.log = root, child, port, log
        self.url = f"http://127.0.0.1:{port}/mcp"

    def call(self, *arguments, **how):
        return self.root.run("call", *arguments, "--url", self.url, **how)

    def gives(self, text, *arguments, **how):
        """A call whose result has this text."""
        done = self.call(*arguments, **how)
        assert done.returncode == 0 and text in done.stdout, f"{done}\n{self.log.read_text()}"

    def kill(self):
        self.child.kill()
        self.child.wait()


def slow(seconds):
    return ["slow", json.dumps({"s": seconds})]


class TlsServer(ModernServer):
    """A server with a certificate."""

    def __init__(self, certificate):
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate)
        super().__init__()
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def serve(self, connection):
        try:
            connection = self.tls.wrap_socket(connection, server_side=True)
        except OSError:
            return
        super().serve(connection)


class Resolver:
    """A name server that knows a few names, and fails for those in broken.test."""

    def __init__(self, names):
        self.names, self.asked = names, []
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 53))
        self.tcp = socket.create_server(("127.0.0.1", 53))
        for job in (self.over_udp, self.over_tcp):
            threading.Thread(target=job, daemon=True).start()

    def over_udp(self):
        while True:
            query, client = self.udp.recvfrom(4096)
            self.udp.sendto(self.answer(query, "udp"), client)

    def over_tcp(self):
        while True:
            connection, _ = self.tcp.accept()
            with connection:
                while head := connection.recv(2, socket.MSG_WAITALL):
                    answer = self.answer(connection.recv(struct.unpack("!H", head)[0], socket.MSG_WAITALL), "tcp")
                    connection.sendall(struct.pack("!H", len(answer)) + answer)

    def answer(self, query, how):
        at, labels = 12, []
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, kind = ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0]
        self.asked.append((name, kind, how))
        question, known = query[12 : at + 5], name in self.names
        addresses = self.names.get(name, []) if kind == 1 else []
        # More than 512 bytes do not go over UDP.
        cut = how == "udp" and len(addresses) > 20
        addresses = [] if cut else addresses
        code = 2 if name.endswith("broken.test") else 0 if known else 3
        flags = 0x8180 | (0x0200 if cut else 0) | code
        records = [struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address) for address in addresses]
        return query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0) + question + b"".join(records)


class Tests:
    def __init__(self, folder):
        self.folder, self.roots, self.made = folder, [], 0
        self.server = ModernServer()

    def root(self, **how):
        self.made += 1
        self.roots.append(Root(self.folder / f"root-{self.made}", **how))
        return self.roots[-1]

    def end(self):
        for root in self.roots:
            root.end()
        self.roots = []

    def test_it_names_no_library_and_no_loader(self):
        headers = subprocess.run(["readelf", "--program-headers", "--dynamic", PROGRAM], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers and "NEEDED" not in headers, headers

    def test_the_demo_runs_in_an_empty_root(self):
        done = self.root().run("demo", limit=120)
        assert done.returncode == 0 and 'completed: "Hello, Ada!"' in done.stdout, done

    def test_a_server_over_http_and_a_file_that_survives_a_kill(self):
        root = self.root()
        arguments = ["--upstream", self.server.url, "--store", "redb:/tasks.redb"]
        first = root.start(*arguments)
        first.gives("run", *slow(0))
        done = first.call(*slow(3), "--detach").stdout.strip()
        until("its result is there", lambda: first.call("--attach", done).returncode == 0)
        open_call = first.call(*slow(60), "--detach").stdout.strip()
        assert done and open_call, first.log.read_text()
        first.kill()
        second = root.start(*arguments)
        second.gives("run", "--attach", done)
        lost = second.call("--attach", open_call)
        assert lost.returncode == 1 and "may have run" in lost.stderr, lost
        second.gives("run", *slow(3))

    def test_tls_to_clients_and_to_the_server(self):
        authority, certificate = certificates(self.folder)
        server = TlsServer(certificate)
        files = {"tls.pem": certificate.read_text(), "ca.pem": authority.read_text(), "etc/hosts": "127.0.0.1 localhost\n"}
        files["config.toml"] = '[listen.tls]\ncertificate = "/tls.pem"\nkey = "/tls.pem"\n[upstream.tls]\nroots = "/ca.pem"\n'
        root = self.root(files=files)
        served = root.start("--config", "/config.toml", "--upstream", server.url, "--store", "memory:")
        served.url = f"https://localhost:{served.port}/mcp"
        served.gives("run", *slow(3), env={"SSL_CERT_FILE": "/ca.pem"})
        # A client of another library.
        tls = ssl.create_default_context(cafile=str(authority))
        message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(served.url, message, {**head, "MCP-Protocol-Version": "2025-06-18"})
        try:
            urllib.request.urlopen(request, context=tls, timeout=PATIENCE).read()
        except urllib.error.HTTPError as refused:
            assert refused.code in (400, 404), refused

    def test_public_authorities_are_where_a_variable_says(self):
        authority, certificate = certificates(self.folder)
        server = TlsServer(certificate)
        root = self.root(files={"ca.pem": authority.read_text(), "etc/hosts": "127.0.0.1 localhost\n"})
        none = root.run("check", "--upstream", server.url, "--store", "memory:")
        said = none.stdout + none.stderr
        assert none.returncode != 0 and "certificates" in said and "SSL_CERT_FILE" in said, none
        served = root.start("--upstream", server.url, "--store", "memory:", env={"SSL_CERT_FILE": "/ca.pem"})
        served.gives("run", *slow(0))

    def test_a_server_that_is_a_program(self):
        root = self.root(proc=True)
        # The program serves on a pipe, too.
        served = root.start("--store", "memory:", "--", "/raincheck", "stdio", "--store", "memory:", "--upstream", self.server.url)
        served.gives("run", *slow(3), limit=120)
        children = pathlib.Path(f"/proc/{served.child.pid}/task/{served.child.pid}/children")
        before = [pid for task in children.parent.parent.iterdir() for pid in (task / "children").read_text().split()]
        assert before, "no child runs"
        served.kill()
        until("its child ends with it", lambda: not any(is_alive(pid) for pid in before))

    def test_a_server_that_is_a_program_needs_proc(self):
        served = self.root().start("--store", "memory:", "--", "/raincheck", "stdio", "--upstream", self.server.url)
        done = served.call(*slow(0))
        assert done.returncode == 1, done
        assert "/proc" in served.log.read_text(), f"{done}\n{served.log.read_text()}"

    def test_redis(self):
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        redis = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            until("redis answers", lambda: answers(port))
            config = '[store]\nnamespace = "static"\n[replica]\nid = "a"\n'
            root = self.root(files={"config.toml": config})
            served = root.start("--config", "/config.toml", "--upstream", self.server.url, "--store", f"redis://127.0.0.1:{port}")
            served.gives("run", *slow(3))
        finally:
            redis.terminate()
            redis.wait(10)

    def test_names(self):
        # Only the last address of many answers.
        names = {"many.test": [f"127.9.0.{i}" for i in range(1, 6)], "short.inner.test": ["127.0.0.1"]}
        names["large.test"] = [f"127.8.0.{i}" for i in range(1, 30)] + ["127.0.0.1"]
        resolver = Resolver(names)
        last = ModernServer("127.9.0.5")
        files = {"etc/resolv.conf": "search outer.test inner.test\nnameserver 127.0.0.1\n"}
        root = self.root(files=files)
        root.start("--upstream", f"http://many.test:{last.port}/mcp", "--store", "memory:").gives("run", *slow(0))
        root.start("--upstream", f"http://short:{self.server.port}/mcp", "--store", "memory:").gives("run", *slow(0))
        assert ("short.outer.test", 1, "udp") in resolver.asked, resolver.asked
        first = names["large.test"][0]
        large = ModernServer(first)
        root.start("--upstream", f"http://large.test:{large.port}/mcp", "--store", "memory:").gives("run", *slow(0))
        assert ("large.test", 1, "tcp") in resolver.asked, resolver.asked
        # As docs/operations.md says: the domain after the one that fails is not tried.
        broken = self.root(files={"etc/resolv.conf": "search broken.test inner.test\nnameserver 127.0.0.1\noptions timeout:1 attempts:1\n"})
        done = broken.run("check", "--upstream", f"http://short:{self.server.port}/mcp", "--store", "memory:")
        assert done.returncode != 0 and "WRONG" in done.stdout, done
        done = root.run("check", "--upstream", "http://nowhere.test:1/mcp", "--store", "memory:")
        assert done.returncode != 0 and "nowhere.test" in done.stdout + done.stderr, done

    def test_localhost_without_a_file_of_hosts(self):
        url = f"http://localhost:{self.server.port}/mcp"
        done = self.root().run("check", "--upstream", url, "--store", "memory:")
        assert done.returncode != 0 and "upstream.connect_timeout" in done.stdout, done
        self.root(files={"etc/hosts": "127.0.0.1 localhost\n"}).start("--upstream", url, "--store", "memory:").gives("run", *slow(0))


def is_alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def certificates(folder):
    """An authority, and a certificate of it with its key, for localhost."""
    authority, certificate = folder / "ca.pem", folder / "tls.pem"
    if not certificate.exists():
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        ca = ["-subj", "/CN=authority", "-keyout", folder / "ca.key", "-out", authority]
        subprocess.run([*make, *ca], check=True, capture_output=True)
        own = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
        own += ["-CA", authority, "-CAkey", folder / "ca.key", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
        subprocess.run([*make, *own], check=True, capture_output=True)
        certificate.write_text((folder / "tls.crt").read_text() + (folder / "tls.key").read_text())
    return authority, certificate


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="static-", dir=PROGRAM.parent))
    folder.chmod(0o755)
    tests, passed, failed = Tests(folder), 0, 0
    names = [name for name in dir(tests) if name.startswith("test_") and any(word in name for word in sys.argv[2:] or [""])]
    if platform.machine() not in str(PROGRAM):
        # qemu itself says which program runs, without the /proc that is missing in this test.
        names = [name for name in names if not name.endswith("_needs_proc")]
        print("not run: test_a_server_that_is_a_program_needs_proc")
    try:
        for name in names:
            began = time.monotonic()
            try:
                getattr(tests, name)()
                passed += 1
                verdict = "ok"
            except Exception:  # noqa: BLE001
                traceback.print_exc(file=sys.stdout)
                failed += 1
                verdict = "FAILED"
            finally:
                tests.end()
            print(f"{verdict:<6} {name} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        tests.end()
        shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
