"""The tables of docs/performance.md."""

# What a target is called on the page.
SHOWN = {
    "raincheck-tasks": "raincheck",
    "raincheck-tasks-h2": "raincheck, HTTP/2 upstream",
    "raincheck-in-flight": "raincheck, HTTP/2 upstream",
    "raincheck-embedded": "raincheck, embedded store",
    "raincheck-token": "raincheck, the same token passed",
    "raincheck-token-tasks": "raincheck, the same token passed",
    "raincheck-jwt": "raincheck, tokens checked",
    "raincheck-jwt-tasks": "raincheck, tokens checked",
    "raincheck-metrics": "raincheck, metrics",
    "raincheck-telemetry": "raincheck, access log and metrics",
    "raincheck-traces": "raincheck, traces of 1 in 100 calls",
    "raincheck-watched": "raincheck, all three of these",
    "raincheck-traces-all": "raincheck, traces of all calls",
    "nginx-log": "nginx, access log",
    "direct": "no proxy",
    "inspect-tpc": "hyper-inspect, a thread a core",
    "tasks-tpc": "hyper-tasks, a thread a core",
    "hyper-tasks-h2": "hyper-tasks, HTTP/2 upstream",
    "fastmcp": "FastMCP with Docket",
}


def shown(label):
    return SHOWN.get(label, label)


def calls(results):
    """Rates as shares of the first target's, with what a call costs."""
    base, loads = results.labels()[0], results.loads()
    busy = loads[len(loads) // 2]
    head = [f"rate at {at}" for at in loads]
    head += [f"CPU a call at {busy} (us)", f"median at {loads[0]} (us)", f"p99 at {busy} (us)", "memory (MiB)"]
    rows = []
    for label in results.labels():
        row = [share(results, label, base, at) for at in loads]
        row.append(number(results.median(label, busy, "cpu_us_per_unit"), 1))
        row.append(number(results.median(label, loads[0], "p50_us"), 0))
        row.append(number(results.median(label, busy, "p99_us"), 0))
        row.append(mib(results.median(label, busy, "rss_peak_kb")))
        rows.append([shown(label), *row])
    return table(["", *head], rows)


def share(results, label, base, at):
    ratio = results.ratio(label, base, at, "rps")
    if label != base or ratio is None:
        return number(ratio, 2)
    return f"1 = {results.median(label, at, 'rps'):,.0f}/s"


def events(results):
    """The latency of one event, above the first target's."""
    base, loads = results.labels()[0], results.loads()
    head = [word for at in loads for word in (f"median at {at} streams (us)", f"p99 at {at} (us)")]
    rows = []
    for label in results.labels():
        row = []
        for at in loads:
            median = number(results.median(label, at, "p50_us"), 0)
            added = results.added(label, base, at, "p50_us")
            row.append(median if label == base or added is None else f"{median} ({added:+.0f})")
            row.append(number(results.median(label, at, "p99_us"), 0))
        row.append(number(results.median(label, loads[-1], "cpu_us_per_unit"), 1))
        rows.append([shown(label), *row])
    return table(["", *head, f"CPU an event at {loads[-1]} (us)"], rows)


def open_calls(results):
    """What an open task costs."""
    loads = results.loads()
    head = [f"KiB a task, {at:,} open" for at in loads] + [f"CPU to open {at:,} (s)" for at in loads]
    rows = []
    for label in results.labels():
        row = [number(results.median(label, at, "kib_per_open"), 1) for at in loads]
        cpu = [results.median(label, at, "cpu_ms_open") for at in loads]
        row += [number(None if ms is None else ms / 1000, 2) for ms in cpu]
        rows.append([shown(label), *row])
    return table(["", *head], rows)


def in_flight(results):
    """What polls cost while many tasks are in flight."""
    rows = []
    for label in results.labels():
        for at in results.loads():
            wrong = sum(results.values(label, at, "sample_bad").values())
            row = [number(results.median(label, at, name), 0) for name in ("p50_us", "p99_us")]
            memory = results.median(label, at, "rss_open_kb")
            row += [number(None if memory is None else memory / 1024, 0), number(results.median(label, at, "kib_per_open"), 1)]
            rows.append([f"{shown(label)}, {at:,} in flight", *row, str(wrong)])
    return table(["", "poll p50 (us)", "poll p99 (us)", "memory (MiB)", "KiB a task", "wrong polls"], rows)


def cold_starts(results):
    rows = []
    for label in results.labels():
        took = results.values(label, 1, "ms").values()
        row = [number(results.median(label, 1, "ms"), 1), number(min(took), 1)]
        rows.append([shown(label), *row, mib(results.median(label, 1, "rss_kb"))])
    return table(["", "median (ms)", "least (ms)", "memory then (MiB)"], rows)


def sizes(results):
    rows = [[shown(label), number(results.median(label, 1, "bytes") / 1e6, 2)] for label in results.labels()]
    return table(["", "program (MB)"], rows)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def mib(kib):
    return number(None if kib is None else kib / 1024, 1)
