"""The servers that are measured side by side, and what they need."""

import hashlib
import os
import shutil
import socket
import sys
import time
import urllib.request
from dataclasses import dataclass

from .build import BENCHES
from .issuer import Issuer
from .processes import free_port

# What a raincheck of these names runs with, beside its defaults. Settings are as in config.example.toml. "token": clients
# send a token, which is passed on, or checked before.
RAINCHECKS = {
    "raincheck": {},
    "raincheck-tasks": {"tasks.mode": "always"},
    "raincheck-tasks-h2": {"tasks.mode": "always", "upstream.http2": "true"},
    # A hundred thousand calls, and each poll is answered at once, so that polls can be measured.
    "raincheck-in-flight": {"tasks.mode": "always", "tasks.poll_hold": "0s", "limits.calls": "200000", "upstream.http2": "true"},
    "raincheck-embedded": {"tasks.mode": "always", "store.url": "redb:{folder}/tasks.redb"},
    "raincheck-token": {"token": "passed"},
    "raincheck-token-tasks": {"tasks.mode": "always", "token": "passed"},
    "raincheck-jwt": {"token": "checked"},
    "raincheck-jwt-tasks": {"tasks.mode": "always", "token": "checked"},
    "raincheck-metrics": {"admin.listen": "127.0.0.1:{admin}"},
    "raincheck-telemetry": {"telemetry.access_log": "true", "admin.listen": "127.0.0.1:{admin}"},
    "raincheck-traces": {"telemetry.traces.endpoint": "{collector}", "telemetry.traces.ratio": "0.01"},
    "raincheck-watched": {
        "telemetry.access_log": "true",
        "admin.listen": "127.0.0.1:{admin}",
        "telemetry.traces.endpoint": "{collector}",
        "telemetry.traces.ratio": "0.01",
    },
    "raincheck-traces-all": {"telemetry.traces.endpoint": "{collector}", "telemetry.traces.ratio": "1.0"},
}

# nginx, and where its access log goes: gathered, as raincheck's lines are.
NGINXES = {"nginx": "off", "nginx-log": "{folder}/access.log combined buffer=64k flush=1s"}

HYPER_LIMITS = {
    "hyper": [],
    "hyper-inspect": ["--inspect", "1"],
    "inspect-tpc": ["--inspect", "1", "--tpc", "2"],
    "hyper-tasks": ["--redis", "{redis}"],
    "tasks-tpc": ["--redis", "{redis}", "--tpc", "2"],
    "hyper-tasks-h2": ["--redis", "{redis}", "--h2", "1"],
}


class NotInstalled(Exception):
    """A program to compare with is not there. Its measurements are left out."""


@dataclass
class Target:
    """A server that answers at a URL."""

    name: str
    url: str
    process: object
    # What clients must send beside the protocol's headers.
    header: str = ""
    # Where its metrics are, if it has some.
    admin_port: int = 0


class Targets:
    """Starts targets by name."""

    def __init__(self, processes, raincheck, programs, peers):
        self.processes = processes
        self.folder = processes.folder
        self.raincheck_path = raincheck
        self.programs = programs
        # The Python that has FastMCP.
        self.peers = peers
        self.issuer = None
        self.collector = None
        self.upstream = free_port()
        self.direct = processes.start(
            "direct",
            [programs / "echo-upstream", "--listen", f"127.0.0.1:{self.upstream}"],
            self.upstream,
        )
        self.redis_port = free_port()
        self.redis = f"redis://127.0.0.1:{self.redis_port}"
        processes.start("redis", self._redis_command(), self.redis_port)

    def _redis_command(self):
        if not shutil.which("redis-server"):
            sys.exit("error: redis-server is missing: install it (apt-get install redis-server)")
        local = ["--port", self.redis_port, "--bind", "127.0.0.1", "--dir", self.folder]
        return ["redis-server", *local, "--save", "", "--appendonly", "no"]

    def start(self, name):
        """Starts a target, or raises NotInstalled."""
        if name == "direct":
            return Target(name, self.url(self.upstream), self.direct)
        port = free_port()
        if name in HYPER_LIMITS:
            process = self._hyper_limit(name, port)
        elif name in RAINCHECKS:
            return self._raincheck(name, port)
        elif name == "fastmcp":
            process = self._fastmcp(port)
        else:
            process = self._configured(name, port)
        return Target(name, self.url(port), process)

    def end(self, target):
        if target.process is not self.direct:
            self.processes.end(target.process)

    def forget_tasks(self):
        """Empties Redis and the embedded store, so that no measurement carries what an earlier one left."""
        for file in self.folder.glob("*.redb"):
            file.unlink()
        with socket.create_connection(("127.0.0.1", self.redis_port), timeout=60) as redis:
            redis.sendall(b"FLUSHALL\r\n")
            redis.recv(64)

    def await_idle(self):
        """Waits until the upstream has no call left."""
        last = time.monotonic() + 60
        while b'"active":0' not in read(f"http://127.0.0.1:{self.upstream}/stats"):
            if time.monotonic() > last:
                sys.exit("error: the upstream still has calls a minute after their clients left")
            time.sleep(0.05)

    def command(self, name, port):
        """How a target is started, and its environment: for measurements of the start itself."""
        if name in HYPER_LIMITS:
            words = [word.format(redis=self.redis) for word in HYPER_LIMITS[name]]
            local = ["--listen", f"127.0.0.1:{port}", "--upstream", f"http://127.0.0.1:{self.upstream}"]
            return [self.programs / "hyper-limit", *local, *words], None
        if name in RAINCHECKS:
            return self._raincheck_command(name, port)
        return self._configured_command(name, port), None

    def _hyper_limit(self, name, port):
        command, _ = self.command(name, port)
        return self.processes.start(name, command, port)

    def _raincheck(self, name, port):
        admin = free_port() if "admin.listen" in RAINCHECKS[name] else 0
        command, env = self._raincheck_command(name, port, admin)
        process = self.processes.start(name, command, port, env)
        header = f"Authorization: Bearer {self.issuer.token}" if "token" in RAINCHECKS[name] else ""
        return Target(name, self.url(port), process, header, admin)

    def _raincheck_command(self, name, port, admin=0):
        settings = dict(RAINCHECKS[name])
        token = settings.pop("token", None)
        if token:
            self.issuer = self.issuer or Issuer(self.folder)
        config = self.issuer.settings if token == "checked" else ""
        collector = self._collector() if "{collector}" in settings.get("telemetry.traces.endpoint", "") else ""
        words = {"folder": self.folder, "admin": admin, "collector": collector}
        settings = {setting: value.format(**words) for setting, value in settings.items()}
        # A store of its own for each run of the program.
        namespace = f"{name}-{hashlib.sha256(str(port).encode()).hexdigest()[:8]}"
        return self.raincheck_command(name, port, namespace, settings, config)

    def raincheck_command(self, name, port, namespace, settings, config="", upstream=()):
        """How a raincheck of this name starts, whose tasks are in this namespace, and its environment. `upstream`: the words that
        name the server, if it is another than the usual one."""
        file = self.folder / f"{name}.toml"
        file.write_text(config)
        env = {key: value for key, value in os.environ.items() if not key.startswith("RAINCHECK_")}
        env["XDG_STATE_HOME"] = str(self.folder / f"state-{name}")
        env["RAINCHECK_STORE__URL"] = self.redis
        env["RAINCHECK_STORE__NAMESPACE"] = namespace
        for setting, value in settings.items():
            env["RAINCHECK_" + setting.upper().replace(".", "__")] = value
        if env["RAINCHECK_STORE__URL"].startswith("redb:"):
            del env["RAINCHECK_STORE__NAMESPACE"]
        upstream = upstream or ["--upstream", self.url(self.upstream)]
        return [self.raincheck_path, "run", "--config", file, "--listen", f"127.0.0.1:{port}", *upstream], env

    def _collector(self):
        """Where spans go: a process of its own, so that it is no part of the upstream's work."""
        if not self.collector:
            port = free_port()
            command = [self.programs / "echo-upstream", "--listen", f"127.0.0.1:{port}"]
            self.processes.start("collector", command, port)
            self.collector = f"http://127.0.0.1:{port}/v1/traces"
        return self.collector

    def _configured(self, name, port):
        return self.processes.start(name, self._configured_command(name, port), port)

    def _configured_command(self, name, port):
        program = "nginx" if name in NGINXES else name
        if not shutil.which(program):
            raise NotInstalled(f"{program} is not installed (apt-get install {program})")
        template = next((BENCHES / "conf").glob(f"{program}.*"))
        text = template.read_text()
        log = NGINXES.get(name, "").format(folder=self.folder)
        filled = {"FOLDER": self.folder, "PORT": port, "UPSTREAM": self.upstream, "LOG": log}
        for word, value in filled.items():
            text = text.replace(f"@{word}@", str(value))
        config = self.folder / f"{name}{template.suffix}"
        config.write_text(text)
        if program == "nginx":
            return ["nginx", "-e", self.folder / "nginx-errors.log", "-c", config]
        return [program, "-db", "-f", config]

    def _fastmcp(self, port):
        if not self.peers:
            raise NotInstalled("no Python with FastMCP was named (--peers, see benches/README.md)")
        script = BENCHES / "peers" / "docket_server.py"
        return self.processes.start("fastmcp", [self.peers, script, port, self.redis], port)

    @staticmethod
    def url(port):
        return f"http://127.0.0.1:{port}/mcp"


def read(url):
    """The body of a GET."""
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read()
