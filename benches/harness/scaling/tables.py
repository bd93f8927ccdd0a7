"""The rows of a part as a table."""

COLUMNS = {
    "kept": {
        "kept": "kept tasks",
        "redis_mib": "Redis (MiB)",
        "create_p50_us": "create p50 (us)",
        "create_raincheck_us": "raincheck a create (us)",
        "create_redis_us": "Redis a create (us)",
        "get_p50_us": "get p50 (us)",
        "get_raincheck_us": "raincheck a get (us)",
        "get_redis_us": "Redis a get (us)",
        "idle_raincheck_us": "raincheck idle (us a second)",
        "idle_redis_us": "Redis idle (us a second)",
        "page_open_ms": "page of open tasks (ms)",
        "page_all_ms": "page with ended tasks (ms)",
        "recovery_s": "recovery (s)",
        "start_ms": "start (ms)",
    },
    "listed": {
        "listed": "listed tasks",
        "first_ms": "first page (ms)",
        "second_ms": "second page (ms)",
        "raincheck_us": "raincheck a page (us)",
        "redis_us": "Redis a page (us)",
    },
    "replicas": {
        "replicas": "replicas",
        "tasks_per_s": "tasks a second",
        "replicas_us": "all replicas a task (us)",
        "redis_us": "Redis a task (us)",
        "follower_reads": "follower reads a task",
        "idle_replicas_us": "replicas idle (us a second)",
        "idle_redis_us": "Redis idle (us a second)",
        "poll_owner_us": "poll at the owner (us)",
        "poll_other_us": "poll elsewhere (us)",
        "end_owner_ms": "end heard at the owner (ms)",
        "end_other_ms": "end heard elsewhere (ms)",
    },
    "listeners": {
        "listeners": "listeners",
        "kib": "KiB a listener",
        "idle_us": "idle (us a second)",
        "one_us": "a change that one sees (us)",
        "one_ms": "until it is heard (ms)",
        "all_us": "a change that all see (us)",
        "all_redis_us": "Redis (us)",
        "all_ms": "until all have heard it (ms)",
    },
    "callers": {
        "callers": "callers",
        "p50_us": "create p50 (us)",
        "raincheck_us": "raincheck a create (us)",
        "redis_us": "Redis a create (us)",
        "memory_mib": "raincheck then (MiB)",
    },
    "flood": {
        "creates": "creates",
        "accepted": "accepted",
        "refused": "refused",
        "idle_p50_us": "poll p50 idle (us)",
        "idle_p99_us": "p99 idle (us)",
        "full_p50_us": "p50 full and flooded (us)",
        "full_p99_us": "p99 full and flooded (us)",
        "full_mib": "full (MiB)",
        "flooded_mib": "after the flood (MiB)",
        "lost": "lost or wrong",
        "completed": "completed",
        "otherwise": "ended otherwise",
        "open": "still open",
    },
}


def table(part, rows):
    columns = COLUMNS[part]
    lines = [list(columns.values()), ["---"] * len(columns)]
    lines += [[shown(row[key]) for key in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(value):
    return f"{value:,}"
