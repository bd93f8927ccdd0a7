"""With kept tasks in Redis: create, get, the pages of operators, recovery, start, and doing nothing."""

import statistics
import time
import urllib.request

from .client import Client
from .fleet import LEASE_SECONDS, Fleet, redis, told_number

# Tasks that gets ask for. They are created in the same measurement: so few that it does not show.
PRELOAD = 500
ORPHANS = 200
PATIENCE_SECONDS = 120


def measure(targets, counts, seconds, say):
    """A row for each number of kept tasks."""
    with Fleet(targets, "kept") as fleet:
        replica = fleet.start()
        kept = 0
        for count in counts:
            kept += fill(fleet, replica, count - kept, say)
            row = {"kept": kept, "redis_mib": round(memory_mib(targets))}
            row |= calls(fleet, replica, seconds)
            kept += row["created"]
            row |= idle(fleet, seconds)
            row |= pages(replica)
            row |= recovery(fleet, replica)
            row["start_ms"] = start_ms(fleet)
            yield row


def fill(fleet, replica, wanted, say, *options):
    """Creates tasks, and returns how many."""
    made, began = 0, time.monotonic()
    while made < wanted:
        # loadgen knows no count: the last step is a short one.
        rate = made / (time.monotonic() - began) if made else 10_000
        seconds = max(0.3, min(20, (wanted - made) / rate))
        made += fleet.load([replica], "task-create", seconds, "--concurrency", 32, *options)[0]["count"]
        say(f"  {made:,} of {wanted:,} tasks")
    return made


def memory_mib(targets):
    return int(told_number(redis(targets.redis_port, "INFO memory"), "used_memory")) / 2**20


def calls(fleet, replica, seconds):
    """Creates and gets, and what they cost."""
    row = {"created": 0}
    for mode, options in (("create", []), ("get", ["--preload", PRELOAD])):
        one = fleet.load([replica], f"task-{mode}", seconds, "--concurrency", 1, *options)[0]
        before = fleet.use()
        many = fleet.load([replica], f"task-{mode}", seconds, "--concurrency", 16, *options)[0]
        used = fleet.use().since(before)
        row[f"{mode}_p50_us"] = one["p50_us"]
        row[f"{mode}_p99_us"] = one["p99_us"]
        row[f"{mode}_raincheck_us"] = round(used.replicas_us / many["count"], 1)
        row[f"{mode}_redis_us"] = round(used.redis_us / many["count"], 1)
        row["created"] += one["count"] + many["count"] if mode == "create" else 2 * PRELOAD
    return row


def idle(fleet, seconds):
    """CPU a second while no client calls: heartbeats, sweeps and the follower."""
    before = fleet.use()
    time.sleep(max(seconds, 5))
    used = fleet.use().since(before)
    return {"idle_raincheck_us": round(used.replicas_us / used.when), "idle_redis_us": round(used.redis_us / used.when)}


def pages(replica):
    """Milliseconds of a page of tasks for operators, without and with the tasks that ended lately."""
    return {
        "page_open_ms": median_ms(lambda: read(replica, "/tasks?state=working")),
        "page_all_ms": median_ms(lambda: read(replica, "/tasks")),
    }


def read(replica, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{replica.admin}{path}", timeout=120) as answer:
        return answer.read()


def median_ms(work):
    took = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(took), 1)


def recovery(fleet, replica):
    """From the death of another replica to the end of the last of its open tasks."""
    other = fleet.start()
    client = Client(other.port)
    tasks = [client.create("slow", ms=600_000) for _ in range(ORPHANS)]
    client.close()
    before = fleet.use()
    fleet.kill(other)
    died = time.monotonic()
    client = Client(replica.port)
    for task in reversed(tasks):
        while client.get(task)["status"] == "working":
            if time.monotonic() - died > PATIENCE_SECONDS:
                raise RuntimeError("a task of a dead replica is still working")
            time.sleep(0.02)
    took = time.monotonic() - died
    client.close()
    used = fleet.use().since(before)
    return {"recovery_s": round(took, 2), "lease_s": LEASE_SECONDS, "recovery_redis_us": round(used.redis_us / ORPHANS, 1)}


def start_ms(fleet):
    """From the start of one more replica until it accepts connections."""
    began = time.perf_counter()
    replica = fleet.start()
    took = (time.perf_counter() - began) * 1000
    fleet.end(replica)
    return round(took, 1)
