"""With different callers that create tasks."""

from .fleet import Fleet, memory_kib


def measure(targets, counts, seconds):
    """A row for each number of callers."""
    for count in counts:
        with Fleet(targets, f"callers-{count}") as fleet:
            replica = fleet.start()
            options = ["--concurrency", 16, "--callers", count]
            fleet.load([replica], "task-create", 1, *options)
            before = fleet.use()
            line = fleet.load([replica], "task-create", seconds, *options)[0]
            used = fleet.use().since(before)
            tasks = line["count"]
            yield {
                "callers": count,
                "tasks": tasks,
                "p50_us": line["p50_us"],
                "raincheck_us": round(used.replicas_us / tasks, 1),
                "redis_us": round(used.redis_us / tasks, 1),
                "memory_mib": round(memory_kib(replica) / 1024, 1),
            }
