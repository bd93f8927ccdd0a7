"""What a raincheck does while the compiler's profile of it is recorded (deploy/build.sh): a little of everything that clients do often.

What never ran here is compiled to be small, and what ran most to be fast. So each way for a call to arrive, to be kept and to be
sent on belongs here, and how long each lasts hardly matters."""

import json
import subprocess

from . import coldstart
from .processes import free_port
from .targets import Target

# The methods of `Training`.
PARTS = ("starts", "loads")

# One of each store, and one with a listener for operators.
STARTS = ["raincheck", "raincheck-embedded", "raincheck-metrics"]

SECONDS = 0.5
CONCURRENCY = 16

# Loads of one raincheck as the plans have it: a name of RAINCHECKS, and the modes of loadgen.
LOADS = {
    "raincheck": ["passthrough", "passthrough --wire legacy", "declared", "list", "sse --events 20", "sse --events 20 --wire legacy"],
    "raincheck-tasks": ["task-create", "task-create --wire legacy", "task-get --preload 200", "task-lifecycle"],
    "raincheck-tasks-h2": ["task-create", "passthrough", "sse --events 20"],
    "raincheck-embedded": ["task-create", "task-get --preload 200", "task-lifecycle"],
    "raincheck-jwt": ["passthrough"],
    "raincheck-jwt-tasks": ["task-create"],
    "raincheck-telemetry": ["passthrough"],
    "raincheck-traces": ["passthrough"],
    "raincheck-traces-all": ["passthrough"],
}

# Loads of a raincheck in front of another one.
ALWAYS = {"tasks.mode": "always"}
CHAINED_LOADS = ["passthrough", "passthrough --wire legacy", "sse --events 20", "task-create"]


class Training:
    """Runs what it is made of, one after the other, and fails if a call fails."""

    def __init__(self, targets, programs, say):
        self.targets = targets
        self.loadgen = programs / "loadgen"
        self.say = say

    def starts(self):
        """From the start to the first answer, and the end."""
        for name in STARTS:
            self.say(f"{name}: start")
            coldstart.measure(self.targets, name)

    def loads(self):
        for name, loads in LOADS.items():
            target = self.targets.start(name)
            self._load(target, loads)
            self.targets.end(target)
        for name, chain in (("tls", self._tls), ("http2", self._http2), ("stdio", self._stdio)):
            chained = chain(name)
            self._load(chained[-1], CHAINED_LOADS)
            for target in reversed(chained):
                self.targets.end(target)

    def _load(self, target, loads):
        for load in loads:
            self.say(f"{target.name}: {load}")
            command = [self.loadgen, "--url", target.url, "--label", target.name, "--mode", *load.split()]
            command += ["--concurrency", CONCURRENCY, "--seconds", SECONDS, "--warmup", 0]
            if target.header:
                command += ["--header", target.header]
            run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
            line = json.loads(run.stdout or "{}")
            if run.returncode or line["errors"]:
                raise SystemExit(f"error: {target.name}: {load}: {line.get('first_error') or 'loadgen said nothing'}")

    def _tls(self, name):
        """TLS at a listener, and towards a server."""
        certificate, key = self._certificate()
        behind = self._start(f"{name}-behind", {"listen.tls.certificate": certificate, "listen.tls.key": key})
        url = behind.url.replace("http://127.0.0.1", "https://localhost")
        before = self._start(name, {**ALWAYS, "upstream.tls.roots": certificate}, ["--upstream", url])
        return behind, before

    def _http2(self, name):
        """HTTP/2 at a listener, and towards a server."""
        behind = self._start(f"{name}-behind", {"listen.h2c": "true"})
        before = self._start(name, {**ALWAYS, "upstream.http2": "true"}, ["--upstream", behind.url])
        return behind, before

    def _stdio(self, name):
        """A server that is a process, and the raincheck that a client launches."""
        upstream = self.targets.url(self.targets.upstream)
        command = [self.targets.raincheck_path, "stdio", "--store", "memory:", "--upstream", upstream]
        return (self._start(name, ALWAYS, ["--", *command]),)

    def _start(self, name, settings, upstream=()):
        port = free_port()
        command, env = self.targets.raincheck_command(f"raincheck-{name}", port, f"train-{name}", settings, upstream=upstream)
        process = self.targets.processes.start(f"raincheck-{name}", command, port, env)
        return Target(f"raincheck-{name}", self.targets.url(port), process)

    def _certificate(self):
        """A certificate for `localhost` that is its own root, and its key."""
        certificate, key = self.targets.folder / "localhost.pem", self.targets.folder / "localhost.key"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"]
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        subprocess.run([*new, *subject, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        return str(certificate), str(key)
