#!/usr/bin/env python3
"""tests/field/run.py [NAME..]: runs the reports of people in the field, those of these names or all, and sums them.

A report whose verdict begins with "open" shows a fault that is not mended. It runs where it is named; a run of all counts it as skipped.
--table: writes the log in README.md anew from the first lines of the reports. A run of all reports fails if it is out of date.
"""

import concurrent.futures
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).parent
LOG = HERE / "README.md"
LIMIT = 120
AT_ONCE = 2
AREAS = ["servers", "clients", "stdio programs", "Redis", "deployment", "security"]
FIELDS = ["Area", "Source", "Met", "First try", "Verdict"]
BEGIN = "<!-- written by run.py --table -->\n"


def reports():
    return {path.stem: path for path in sorted((HERE / "reports").glob("*.py"))}


def about(path):
    """The fields of a report, from the docstring that it begins with."""
    text = re.match(r'"""(.*?)"""', path.read_text(), re.S)
    if not text:
        raise SystemExit(f"{path.name}: it must begin with a docstring")
    found = dict(re.findall(rf"^({'|'.join(FIELDS)}): (.*(?:\n(?!\w[\w ]*: ).+)*)", text[1], re.M))
    missing = [field for field in FIELDS if field not in found]
    if missing or found["Area"] not in AREAS or not found["First try"].startswith(("pass", "fail")):
        raise SystemExit(f"{path.name}: {missing or found['Area']}: see template.py")
    return {field: " ".join(value.split()) for field, value in found.items()}


def table():
    rows = {path.stem: about(path) for path in reports().values()}
    first = sum(row["First try"].startswith("pass") for row in rows.values())
    left = sum(row["Verdict"].startswith("open") for row in rows.values())
    out = [f"{len(rows)} reports; {first} passed at the first try, {len(rows) - left} pass now, and {left} are open.\n"]
    for area in AREAS:
        of_area = {name: row for name, row in rows.items() if row["Area"] == area}
        out += [f"\n### {area[0].upper()}{area[1:]}: {len(of_area)}\n", "| report | source | what people met | at the first try | verdict |", "|---|---|---|---|---|"]
        out += [f"| `{name}` | {row['Source']} | {row['Met']} | {row['First try']} | {row['Verdict']} |" for name, row in of_area.items()]
    return LOG.read_text().partition(BEGIN)[0] + BEGIN + "\n" + "\n".join(out) + "\n"


def one(path):
    """Runs one report in this process."""
    sys.path[:0] = [str(HERE)]
    from house import Field

    spec = importlib.util.spec_from_file_location(path.stem, path)
    report = importlib.util.module_from_spec(spec)
    field = Field()
    try:
        spec.loader.exec_module(report)
        report.test(field)
    except BaseException:
        traceback.print_exc()
        for name, text in field.logs():
            print(f"--- {name}\n{text}", file=sys.stderr)
        return 1
    finally:
        field.end()
        shutil.rmtree(field.dir, ignore_errors=True)
    return 0


def apart(path):
    """Runs one report in a process of its own, within the limit."""
    try:
        done = subprocess.run([sys.executable, __file__, "--one", str(path)], capture_output=True, text=True, timeout=LIMIT, check=False)
        return path.stem, done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return path.stem, 1, f"not within {LIMIT} s\n{(late.stderr or b'').decode(errors='replace')}"


def main(words):
    if words[:1] == ["--one"]:
        raise SystemExit(one(pathlib.Path(words[1])))
    if words == ["--table"]:
        LOG.write_text(table())
        return
    known = reports()
    unknown = set(words) - known.keys()
    if unknown:
        raise SystemExit(f"no report: {', '.join(sorted(unknown))}")
    failed = 0
    is_open = {name: about(path)["Verdict"].startswith("open") for name, path in known.items()}
    wanted = [known[name] for name in words] or [path for name, path in known.items() if not is_open[name]]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, code, said in pool.map(apart, wanted):
            failed += code != 0
            print(f"{'FAILED' if code else 'ok    '} {name}", flush=True)
            if code:
                print(said, flush=True)
    if not words and LOG.read_text() != table():
        failed += 1
        print("FAILED: README.md is out of date: tests/field/run.py --table")
    skipped = 0 if words else sum(is_open.values())
    print(f"{len(wanted) - min(failed, len(wanted))} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    raise SystemExit(failed > 0)


main(sys.argv[1:])
