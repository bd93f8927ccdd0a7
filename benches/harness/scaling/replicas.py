"""With replicas on one Redis, under the same load all together."""

import statistics
import time

from .client import Client
from .fleet import Fleet

POLLS = 500
HELD = 20
HELD_MS = 150


def measure(targets, counts, seconds, rate):
    """A row for each number of replicas."""
    for count in counts:
        with Fleet(targets, f"replicas-{count}") as fleet:
            for _ in range(count):
                fleet.start()
            before = fleet.use()
            lines = fleet.load(fleet.replicas, "task-create", seconds, "--concurrency", 4, "--rate", rate / count)
            used = fleet.use().since(before)
            tasks = sum(line["count"] for line in lines)
            row = {"replicas": count, "tasks_per_s": round(tasks / used.when)}
            row["replicas_us"] = round(used.replicas_us / tasks, 1)
            row["redis_us"] = round(used.redis_us / tasks, 1)
            row["follower_reads"] = round(used.commands.get("xread", 0) / tasks, 2)
            before = fleet.use()
            time.sleep(max(seconds, 5))
            used = fleet.use().since(before)
            row["idle_replicas_us"] = round(used.replicas_us / used.when)
            row["idle_redis_us"] = round(used.redis_us / used.when)
            row |= polls(fleet.replicas[0], fleet.replicas[-1])
            yield row


def polls(owner, other):
    """Polls of tasks of one replica, at that replica and at another: in microseconds, and after the end of a task."""
    creating = Client(owner.port)
    clients = {"owner": Client(owner.port), "other": Client(other.port)}
    ended = creating.create("fast", nonce="x")
    took = {name: [] for name in clients}
    late = {name: [] for name in clients}
    for _ in range(POLLS):
        for name, client in clients.items():
            began = time.perf_counter()
            client.get(ended)
            took[name].append((time.perf_counter() - began) * 1e6)
    for _ in range(HELD):
        for name, client in clients.items():
            began = time.perf_counter()
            task = creating.create("slow", ms=HELD_MS)
            while client.get(task)["status"] == "working":
                pass
            late[name].append((time.perf_counter() - began) * 1000 - HELD_MS)
    for client in [creating, *clients.values()]:
        client.close()
    row = {f"poll_{name}_us": round(statistics.median(values)) for name, values in took.items()}
    return row | {f"end_{name}_ms": round(statistics.median(values), 1) for name, values in late.items()}
