"""What docs/performance.md gets: for each plan a block between two markers. The prose around the blocks stays."""

from . import plots, tables
from .plots import Bar
from .tables import shown

PLOTS = "plots"


def block(plan, results):
    """The text of a plan's block, and its plots by file name."""
    drawn = {}
    sections = []
    for name, part, table, plot in parts(plan, results):
        sections.append(table)
        if plot:
            file = f"{plan}-{name}.svg" if name else f"{plan}.svg"
            drawn[file] = plot
            alt = f"{plan} {name}".strip()
            sections.append(f"![{alt}]({PLOTS}/{file})")
        if part.errors():
            sections.append(f"**{part.errors()} errors** were counted.")
    sections.append(origin(results.header))
    return "\n\n".join(section for section in sections if section), drawn


def parts(plan, results):
    """Name, lines, table and plot of each part of a plan."""
    if plan == "sse":
        yield "", results, tables.events(results), latency_plot("Median latency of an event (us)", results)
    elif plan == "open-tasks":
        yield "", results, tables.open_calls(results), plot("Memory of an open task (KiB)", results, "kib_per_open", "{:,} open")
    elif plan == "in-flight":
        yield "", results, tables.in_flight(results), None
    elif plan == "cold-start":
        yield "", results, tables.cold_starts(results), plot("From start to the first answer (ms)", results, "ms", "")
    elif plan == "size":
        yield "", results, tables.sizes(results), None
    elif plan == "embedded-create":
        calls = results.mode("task-create")
        yield "", calls, tables.calls(calls) + disk(results), share_plot("Tasks created a second", calls)
    else:
        for name in dict.fromkeys(row.get("part", "") for row in results.rows):
            part = results.part(name)
            yield name, part, tables.calls(part), share_plot("Calls a second", part)


def disk(results):
    took = results.median("disk", 1, "p50_us")
    return "" if took is None else f"\n\nThe disk makes one write durable in {took:.0f} us (median of `fdatasync`)."


def share_plot(title, results):
    base = results.labels()[0]
    groups = []
    for at in results.loads():
        group = []
        for label in results.labels():
            ratios = results.ratios(label, base, at, "rps")
            if ratios:
                median = results.ratio(label, base, at, "rps")
                group.append(Bar(shown(label), median, ratios, f"{median:.2f}"))
        groups.append((f"{at} connections", group))
    return plots.bars(f"{title}, as a share of {shown(base)}", groups)


def latency_plot(title, results):
    return plot(title, results, "p50_us", "{} streams")


def plot(title, results, key, name):
    groups = []
    for at in results.loads():
        group = []
        for label in results.labels():
            median = results.median(label, at, key)
            if median is not None:
                points = list(results.values(label, at, key).values())
                group.append(Bar(shown(label), median, points, f"{median:,.1f}"))
        groups.append((name.format(at), group))
    return plots.bars(title, groups)


def origin(header):
    """What was measured, and where."""
    if not header:
        return ""
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    commit = (header["commit"] or "")[:10] + (" with changes" if header["changed"] else "")
    return (
        f"{header['date']}, commit {commit} (\"{header['subject']}\", profile {header['profile']}), "
        f"{header['rounds']} rounds of {header['seconds']} s; {header['cpu']}, {header['cores']} cores, "
        f"Linux {header['kernel']}; {header['rustc']}; {versions}."
    )


def replaced(page, plan, block):
    """The page with the block between the markers of a plan, or None if the page has no such markers."""
    begin, end = markers(plan)
    before, found, rest = page.partition(begin)
    inside, found_end, after = rest.partition(end)
    if not found or not found_end:
        return None
    return f"{before}{begin}\n{block}\n{end}{after}"


def markers(plan):
    return f"<!-- benches:{plan} -->", f"<!-- /benches:{plan} -->"
