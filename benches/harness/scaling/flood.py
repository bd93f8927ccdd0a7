"""More background creates than an instance takes, with its limits at their defaults and a server that answers slowly."""

import json
import re
import statistics
import subprocess
import time

from .client import Client
from .fleet import SETTINGS, Fleet, memory_kib
from .kept import read

POLLS = 4000
PATIENCE_SECONDS = 20
# Creates a second, once no more are taken.
RATE = 500

# The limits stay at their defaults.
LIMITS = [name for name in SETTINGS if name.startswith("limits.")]


def measure(targets, counts, say):
    """A row for each number of creates. The calls last until the last of them was refused."""
    for count in counts:
        with Fleet(targets, f"flood-{count}") as fleet:
            for name in LIMITS:
                del fleet.settings[name]
            replica = fleet.start()
            client = Client(replica.port)
            task = client.create("fast", nonce="x")
            idle = polls(client, task)
            row = {"creates": count, "idle_p50_us": idle[0], "idle_p99_us": idle[1]}
            slow_ms = 30_000 + count * 2
            filled = start(fleet, replica, "open-tasks", "--open", count, "--hold", 1, "--slow-ms", slow_ms, "--concurrency", 16)
            lines = [ended(filled)]
            row["full_mib"] = round(memory_kib(replica) / 1024)
            flooding = start(fleet, replica, "task-create", "--tool", "slow", "--slow-ms", slow_ms, "--rate", RATE, "--seconds", 10)
            client.close()
            client = Client(replica.port)
            full = polls(client, task)
            row |= {"full_p50_us": full[0], "full_p99_us": full[1]}
            lines.append(ended(flooding))
            row["flooded_mib"] = round(memory_kib(replica) / 1024)
            row["refused"] = sum(line["errors"] for line in lines)
            row["accepted"] = sum(line["count"] for line in lines)
            row["lost"] = lines[0]["lost"] + lines[0]["sample_bad"]
            say(f"  a refusal: {next((line['first_error'] for line in lines if line['errors']), None)}")
            ends = ended_tasks(replica, row["accepted"] + 1, slow_ms)
            row["completed"] = ends.pop("completed", 0) - 1
            row["otherwise"] = sum(ends.values())
            if ends:
                say(f"  other ends: {ends}")
            # What is neither ended nor here has an end that was not counted.
            row["open"] = json.loads(read(replica, "/tasks?state=working"))["total"]
            client.close()
            yield row


def start(fleet, replica, mode, *options):
    command = [fleet.targets.programs / "loadgen", "--url", replica.url, "--mode", mode, "--warmup", 0, *options]
    # In the list of what ends with this program.
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    fleet.targets.processes.running.append(process)
    return process


def ended(process):
    """The line of a loadgen. What it was refused is among its errors."""
    return json.loads(process.communicate(timeout=600)[0])


def polls(client, task):
    """Median and 99th percentile of polls, one after the other."""
    took = []
    for _ in range(POLLS):
        began = time.perf_counter()
        client.get(task)
        took.append((time.perf_counter() - began) * 1e6)
    return round(statistics.median(took)), round(sorted(took)[POLLS * 99 // 100])


def ended_tasks(replica, wanted, slow_ms):
    """How tasks ended, as soon as all have, or nothing more happens."""
    last = time.monotonic() + slow_ms / 1000 + PATIENCE_SECONDS
    while True:
        ends = {}
        for labels, count in re.findall(r"^raincheck_tasks_ended_total\{([^}]*)\} (\d+)", read(replica, "/metrics").decode(), re.MULTILINE):
            outcome = ":".join(filter(None, re.findall(r'(?:outcome|reason)="([^"]*)"', labels)))
            ends[outcome] = ends.get(outcome, 0) + int(count)
        if sum(ends.values()) >= wanted or time.monotonic() > last:
            return ends
        time.sleep(0.5)
