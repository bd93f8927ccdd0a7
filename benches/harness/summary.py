"""Three lines for the README."""


def lines(results):
    """`results`: the results of each plan that was measured."""
    made = [passed(results.get("passthrough")), tasks(results.get("task-create")), footprint(results)]
    return [line for line in made if line]


def passed(results):
    if not results:
        return None
    base, loads = results.labels()[0], results.loads()
    shares = " / ".join(f"{results.ratio('raincheck', base, at, 'rps'):.2f}" for at in loads)
    line = f"A call that passes: {shares} of {base}'s rate at {' / '.join(map(str, loads))} connections"
    if "direct" in results.labels():
        added = results.added("raincheck", "direct", loads[0], "p50_us")
        line += f"; {added:+.0f} us at the median"
    return line + "."


def tasks(results):
    if not results:
        return None
    label = "raincheck-tasks" if "raincheck-tasks" in results.labels() else "raincheck"
    at = 16 if 16 in results.loads() else results.loads()[0]
    rate = results.median(label, at, "rps")
    line = f"A task that is kept in Redis: {rate:,.0f} a second at {at} connections"
    if "fastmcp" in results.labels():
        line += f", {results.ratio(label, 'fastmcp', at, 'rps'):.0f} times FastMCP with Docket"
    return line + "."


def footprint(results):
    words = []
    held, start, size = (results.get(plan) for plan in ("open-tasks", "cold-start", "size"))
    if start:
        words.append(f"first answer after {start.median('raincheck', 1, 'ms'):.0f} ms")
        words.append(f"{start.median('raincheck', 1, 'rss_kb') / 1024:.0f} MiB when idle")
    if held:
        label = "raincheck-tasks" if "raincheck-tasks" in held.labels() else "raincheck"
        words.append(f"{held.median(label, held.loads()[-1], 'kib_per_open'):.0f} KiB for a task in flight")
    if size:
        words.append(f"a program of {size.median('raincheck', 1, 'bytes') / 1e6:.1f} MB")
    return f"Small: {', '.join(words)}." if words else None
