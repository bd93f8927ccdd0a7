"""Replicas on one Redis, load on them, and what both use."""

import json
import os
import re
import socket
import subprocess
import time
from dataclasses import dataclass

from ..processes import free_port, resident_kib

LEASE_SECONDS = 3

# Bounds that let the whole of a measurement in.
SETTINGS = {
    "tasks.mode": "always",
    "tasks.retention": "4h",
    "replica.lease": f"{LEASE_SECONDS}s",
    "limits.tasks": "100000000",
    "limits.tasks_per_caller": "100000000",
    "limits.task_bytes": "64GiB",
    "limits.task_bytes_per_caller": "64GiB",
}


@dataclass
class Replica:
    port: int
    admin: int
    process: object

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"


class Fleet:
    """The replicas of one namespace."""

    def __init__(self, targets, namespace, settings=None):
        self.targets = targets
        self.namespace = namespace
        self.settings = {**SETTINGS, **(settings or {})}
        self.replicas = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for replica in list(self.replicas):
            self.end(replica)

    def start(self):
        port, admin = free_port(), free_port()
        name = f"{self.namespace}-{port}"
        settings = {**self.settings, "replica.id": name, "admin.listen": f"127.0.0.1:{admin}"}
        command, env = self.targets.raincheck_command(name, port, self.namespace, settings)
        replica = Replica(port, admin, self.targets.processes.start(name, command, port, env))
        self.replicas.append(replica)
        return replica

    def end(self, replica):
        self.replicas.remove(replica)
        self.targets.processes.end(replica.process)

    def kill(self, replica):
        """Ends a replica without a word."""
        replica.process.kill()
        self.end(replica)

    def load(self, replicas, mode, seconds, *options):
        """The lines of one loadgen for each replica, at the same time. Every call counts: there is no warmup."""
        running = []
        try:
            for replica in replicas:
                command = [self.targets.programs / "loadgen", "--url", replica.url, "--mode", mode, "--seconds", seconds]
                command += ["--warmup", 0, *options]
                running.append(subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True))
            lines = [json.loads(load.communicate(timeout=seconds + 600)[0]) for load in running]
        finally:
            for load in running:
                load.kill()
                load.wait()
        failed = [line for line in lines if line["errors"]]
        if failed:
            raise RuntimeError(f"{mode}: {failed[0]['errors']} errors, the first: {failed[0]['first_error']}")
        return lines

    def use(self):
        """What the replicas and Redis have used until now."""
        return Use.now(self.targets, self.replicas)


@dataclass
class Use:
    replicas_us: float
    redis_us: float
    commands: dict
    when: float

    @classmethod
    def now(cls, targets, replicas):
        told = redis(targets.redis_port, "INFO all")
        cpu = sum(float(told_number(told, f"used_cpu_{kind}")) for kind in ("user", "sys"))
        commands = dict(re.findall(r"^cmdstat_([^:]+):calls=(\d+)", told, re.MULTILINE))
        return cls(
            sum(cpu_us(replica.process.pid) for replica in replicas),
            cpu * 1e6,
            {name.lower(): int(calls) for name, calls in commands.items()},
            time.monotonic(),
        )

    def since(self, before):
        commands = {name: calls - before.commands.get(name, 0) for name, calls in self.commands.items()}
        return Use(self.replicas_us - before.replicas_us, self.redis_us - before.redis_us, commands, self.when - before.when)


def cpu_us(pid):
    """The CPU time of the threads that a process has. `/proc/PID/stat` knows steps of 10 ms only."""
    times = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as stat:
            times.append(int(stat.read().split()[0]))
    return sum(times) / 1000


def memory_kib(replica):
    return resident_kib(replica.process.pid)


def redis(port, command):
    """The answer to a command of Redis whose answer is a number or a bulk string."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(command.encode() + b"\r\n")
        answers = connection.makefile("rb")
        head = answers.readline().decode().strip()
        if head.startswith("$"):
            return answers.read(int(head[1:])).decode()
        return head


def told_number(told, name):
    return re.search(rf"^{name}:([\d.]+)", told, re.MULTILINE).group(1)
