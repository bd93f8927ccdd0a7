"""What a report needs: a raincheck, servers and clients whose every byte the report may choose. Only Python's own library.

A report is a file of `reports/` with a function `test(field)`. It fails by an exception, so plain `assert` does.
"""

import contextlib
import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time

RAINCHECK = os.environ.get("RAINCHECK", str(pathlib.Path(__file__).parents[2] / "target/debug/raincheck"))
MODERN = "2026-07-28"
PATIENCE = 20


def until(what, holds, seconds=PATIENCE):
    """Waits until `holds()` is true, and returns its value."""
    end = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return value


def free_port(host="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Field:
    """The place of one report: a folder of its own, and processes that end with it."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="raincheck-field-"))
        self.running = []

    def start(self, *command, env=None, log="log", **how):
        """Starts a program; what it writes to standard error is in the file `log` of the folder."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.dir), **(env or {})}
        # As at a terminal, whatever started the tests: `nohup` leaves SIGHUP ignored.
        how = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL), **how}
        with open(self.dir / log, "ab") as errors:
            child = subprocess.Popen(command, env=environment, cwd=self.dir, stderr=errors, **how)
        self.running.append(child)
        return child

    def raincheck(self, *args, config=None, store="memory:", env=None, host="127.0.0.1", ready=True):
        """Starts `raincheck run` with these arguments, such as `"--upstream", url` or `"--", "python3", path`."""
        port = free_port(host)
        name = f"[{host}]" if ":" in host else host
        options = ["--listen", f"{name}:{port}", *(["--store", store] if store else []), *self.config(config)]
        log = f"raincheck-{port}"
        child = self.start(RAINCHECK, "run", *options, *args, env=env, log=log)
        return Raincheck(child, host, port, self.dir / log, ready)

    def stdio(self, *args, config=None, store="memory:", env=None):
        """Starts `raincheck stdio`: a client talks to it by `say` and `answer`."""
        options = [*(["--store", store] if store else []), *self.config(config)]
        child = self.start(RAINCHECK, "stdio", *options, *args, env=env, log="stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return Pipe(child, self.dir / "stdio")

    def config(self, text):
        if text is None:
            return []
        path = self.dir / f"config-{len(self.running)}.toml"
        path.write_text(text)
        return ["--config", str(path)]

    def write(self, name, text, mode=0o644):
        path = self.dir / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def redis(self, *options, port=None):
        """Starts a redis-server; returns its port."""
        port = port or free_port()
        self.start("redis-server", "--port", str(port), "--save", "", "--dir", str(self.dir), *options, log="redis", stdout=subprocess.DEVNULL)
        until("redis answers", lambda: answers(port))
        return port

    def end(self):
        for child in reversed(self.running):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.running:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def logs(self):
        for path in sorted(self.dir.iterdir()):
            if path.is_file() and (path.name.startswith("raincheck-") or path.name in ("stdio", "log")):
                yield path.name, path.read_text(errors="replace")[-3000:]


def answers(port, host="127.0.0.1"):
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), 1).close()
        return True
    return False


class Answer:
    """An HTTP response, as far as it came."""

    def __init__(self, raw):
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.body = unchunked(rest) if "chunked" in self.headers.get("transfer-encoding", "") else rest
        self.text = self.body.decode("utf8", "replace")

    def messages(self):
        """The JSON-RPC messages of the body, JSON or an event stream."""
        if self.text.lstrip().startswith(("{", "[")):
            return [json.loads(self.text)]
        events = self.text.replace("\r\n", "\n").split("\n\n")
        data = ["\n".join(line[5:].strip() for line in event.split("\n") if line.startswith("data:")) for event in events]
        return [json.loads(text) for text in data if text.strip()]

    def answer(self, id):
        """The answer to the request with this id."""
        found = [m for m in self.messages() if isinstance(m, dict) and m.get("id") == id and "method" not in m]
        assert found, f"no answer to {id}: {self.status} {self.text[:500]}"
        return found[0]


def unchunked(rest):
    out = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        try:
            count = int(size.split(b";")[0], 16)
        except ValueError:
            break
        if count == 0:
            break
        out, rest = out + rest[:count], rest[count + 2 :]
    return out


def http(port, method, body=None, headers=None, path="/mcp", seconds=PATIENCE, host="127.0.0.1"):
    """One request over a connection of its own. A header that is None is left out."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = {"host": f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "connection": "close", "content-length": str(len(data))}
    if method == "POST":
        head |= {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    head |= headers or {}
    lines = [f"{name}: {value}" for name, value in head.items() if value is not None]
    with socket.create_connection((host, port), seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + data)
        raw = b""
        with contextlib.suppress(OSError):
            while read := connection.recv(65536):
                raw += read
    return Answer(raw)


class Raincheck:
    """A running `raincheck run`, and clients of it."""

    def __init__(self, child, host, port, log, ready):
        self.child, self.host, self.port, self.path = child, host, port, log
        if ready:
            until("raincheck listens", lambda: answers(port, host) or child.poll() is not None)
            assert child.poll() is None, f"raincheck ended: {self.log()}"

    def log(self):
        return self.path.read_text(errors="replace")

    def http(self, method, body=None, headers=None, **how):
        return http(self.port, method, body, headers, host=self.host, **how)

    def modern(self, method, params=None, id=7, tasks=True, capabilities=None, meta=None, headers=None, name="c", **how):
        """One request of a client of 2026-07-28. Returns the whole response."""
        params = params or {}
        declared = dict(capabilities or {})
        if tasks:
            declared["extensions"] = {"io.modelcontextprotocol/tasks": {}}
        about = {"protocolVersion": MODERN, "clientInfo": {"name": name, "version": "1"}, "clientCapabilities": declared}
        about = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()} | (meta or {})
        head = {"mcp-protocol-version": MODERN, "mcp-method": method}
        named = params.get("taskId") or params.get("name") or params.get("uri")
        if named:
            head["mcp-name"] = named
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": about}}
        return self.http("POST", body, head | (headers or {}), **how)

    def finished(self, task, seconds=PATIENCE, **how):
        """Polls a task to its end, or until it asks."""
        def polled():
            answer = self.modern("tasks/get", {"taskId": task}, **how).answer(7)
            return answer if "error" in answer or answer["result"]["status"] != "working" else None
        return until(f"task {task} ends", polled, seconds)

    def session(self, version="2025-11-25", capabilities=None, headers=None, name="c"):
        return Session(self, version, capabilities or {}, headers or {}, name)


class Session:
    """A client of 2025 on a session of its own."""

    def __init__(self, raincheck, version, capabilities, headers, name):
        self.raincheck, self.headers = raincheck, dict(headers)
        params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": name, "version": "1"}}
        self.first = raincheck.http("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, self.headers)
        if "mcp-session-id" in self.first.headers:
            self.headers["mcp-session-id"] = self.first.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = version
        if self.first.status == 200:
            self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message, **how):
        return self.raincheck.http("POST", message, self.headers, **how)

    def ask(self, method, params=None, id=1, **how):
        return self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}, **how)

    def call(self, tool, arguments=None, id=1, **how):
        """Returns the answer to a call."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, id, **how).answer(id)


class Pipe:
    """A running `raincheck stdio`, as its client sees it."""

    def __init__(self, child, log):
        self.child, self.path, self.lines = child, log, queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.seen = []

    def read(self):
        for line in self.child.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def log(self):
        return self.path.read_text(errors="replace")

    def say(self, message):
        self.child.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")
        self.child.stdin.flush()

    def hello(self, version="2025-11-25", capabilities=None):
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": {"name": "c", "version": "1"}}
        self.say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        first = self.answer(0)
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return first

    def message(self, seconds=PATIENCE):
        """The next message; None at the end of the output."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no message within {seconds} s: {self.seen[-3:]}") from None
        if line is not None:
            self.seen.append(json.loads(line))
        return None if line is None else self.seen[-1]

    def answer(self, id, seconds=PATIENCE):
        """The answer to a request; what comes before it is in `seen`."""
        while (message := self.message(seconds)) is not None:
            if message.get("id") == id and "method" not in message:
                return message
        raise AssertionError(f"the output ended without an answer to {id}: {self.log()[-2000:]}")
