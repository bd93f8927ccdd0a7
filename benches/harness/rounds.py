"""Rounds: every target once a round, one after the other, so that a noisy neighbour disturbs all of them alike.

Each round has processes of its own and begins with another target: where the system puts a process in memory, and which target
comes first, change a measurement by more than what is measured, and must not favour one target in all rounds."""

import json
import subprocess
import threading

from . import coldstart, disk, size
from .targets import NotInstalled, read

WARMUP = "0.5"


class Rounds:
    """Runs a plan and writes its raw lines."""

    def __init__(self, targets, programs, rounds, seconds, say):
        self.targets = targets
        self.loadgen = programs / "loadgen"
        self.rounds = rounds
        self.seconds = seconds
        self.say = say
        self.missing = set()

    def run(self, plan, output):
        """Measures a plan. Each measurement is a line of `output`."""
        for number in range(1, self.rounds + 1):
            self.say(f"{plan.name}: round {number} of {self.rounds}")
            running = self._start(plan)
            scraping = Scraping([target.admin_port for target in running.values() if target.admin_port])
            try:
                for part in plan.parts:
                    for line in self._part(part, running, number):
                        line.update({"round": number, "part": part.name})
                        output.write(json.dumps(line) + "\n")
                        output.flush()
            finally:
                scraping.end()
                for target in running.values():
                    self.targets.end(target)
                self.targets.forget_tasks()

    def _start(self, plan):
        """Starts the targets that serve for a whole round."""
        names = [name for part in plan.parts if lives_long(part) for name in part.targets]
        running = {}
        for name in dict.fromkeys(names):
            try:
                running[name] = self.targets.start(name)
            except NotInstalled as reason:
                self._left_out(name, reason)
        return running

    def _left_out(self, name, reason):
        if name not in self.missing:
            self.missing.add(name)
            self.say(f"{name} is left out: {reason}")

    def _part(self, part, running, number):
        if part.mode == "fdatasync":
            yield disk.fdatasync(self.targets.folder)
        elif part.mode == "size":
            yield from size.sizes(self.targets)
        elif part.mode == "cold-start":
            yield from self._cold_starts(part)
        elif part.open:
            yield from self._open(part)
        else:
            for concurrency in part.concurrency:
                for name in rotated(part.targets, number):
                    if name in running:
                        yield self._measure(running[name], part, concurrency)

    def _cold_starts(self, part):
        for name in part.targets:
            try:
                yield coldstart.measure(self.targets, name)
            except NotInstalled as reason:
                self._left_out(name, reason)

    def _open(self, part):
        """Memory that was used once is not given back at once: each measurement has a process of its own."""
        for count in part.open:
            for name in part.targets:
                target = self.targets.start(name)
                options = ["--open", str(count)]
                yield self._measure(target, part, part.concurrency[0], options)
                self.targets.end(target)
                self.targets.await_idle()
                self.targets.forget_tasks()

    def _measure(self, target, part, concurrency, options=()):
        command = [self.loadgen, "--url", target.url, "--mode", part.mode, "--label", target.name]
        command += ["--concurrency", concurrency, "--seconds", self.seconds, "--warmup", WARMUP]
        command += ["--pid", target.process.pid, *part.options, *options]
        if part.mode == "sse" and self.seconds < 2:
            # A stream of 100 events takes a second.
            command += ["--events", "20"]
        if target.header:
            command += ["--header", target.header]
        run = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
        if not run.stdout.strip():
            raise RuntimeError(f"loadgen said nothing about {target.name} (exit {run.returncode})")
        line = json.loads(run.stdout)
        if line["errors"]:
            self.say(f"{target.name}: {line['errors']} errors, the first: {line['first_error']}")
        return line


def rotated(targets, number):
    """The targets in the order of this round."""
    first = (number - 1) % len(targets)
    return targets[first:] + targets[:first]


def lives_long(part):
    """Whether the targets of a part serve for a whole round."""
    return part.mode not in ("cold-start", "size", "fdatasync") and not part.open


class Scraping:
    """Reads the metrics of the targets that have some once a second, as a busy Prometheus would."""

    def __init__(self, ports):
        self.ports = ports
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._scrape, daemon=True)
        self.thread.start()

    def _scrape(self):
        while not self.over.wait(1):
            for port in self.ports:
                try:
                    read(f"http://127.0.0.1:{port}/metrics")
                except OSError:
                    # The target is ending, or busy. Its load is measured elsewhere.
                    pass

    def end(self):
        self.over.set()
        self.thread.join()
