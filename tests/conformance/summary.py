#!/usr/bin/env python3
"""Read what one run of the suite left in its output folder, and say whether it is what was expected.

    summary.py OUTDIR                                   every scenario, every check that did not succeed, the sum
    summary.py OUTDIR --upstream legacy --run 2026-07-28 --passed 147 --skipped 0 --expected-failures FILE

With an expectation only what differs is printed. It holds when exactly that many checks passed and were skipped, the
checks that FILE lists for this upstream and run failed, and no other: a check that vanished from the suite's output, and
a listed check that passes, are failures too. A scenario that throws leaves no checks behind; it counts as one failure.
The last line is "N passed, N failed[, N skipped]"; failures that were expected count as skipped. Exit 0 if none failed.
"""
import argparse, json, pathlib, re, sys

SCENARIO_DIR = re.compile(r"^server-(.*?)-\d{4}-\d\d-\d\dT")


def checks_by_scenario(out):
    """{scenario: [check]}; [] for a scenario that started and left nothing."""
    found = {}
    for folder in sorted(out.iterdir()):
        file = folder / "checks.json"
        if (name := SCENARIO_DIR.match(folder.name)) and file.exists():
            found.setdefault(name[1], []).extend(json.loads(file.read_text()))
    log = out / "log.txt"
    started = re.findall(r"^Running client scenario '([^']+)'", log.read_text(errors="replace") if log.exists() else "", re.M)
    return {name: [] for name in started} | found


def expected_failures(file, upstream, run):
    """{(scenario, check)} that FILE lists for this upstream and run; each line must give a reason."""
    listed = set()
    for line in pathlib.Path(file).read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split(None, 4)
        if len(fields) != 5:
            sys.exit(f"{file}: not `upstream run scenario check reason`: {line}")
        if fields[:2] == [upstream, run]:
            listed.add((fields[2], fields[3]))
    return listed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=pathlib.Path)
    ap.add_argument("--upstream")
    ap.add_argument("--run")
    ap.add_argument("--passed", type=int)
    ap.add_argument("--skipped", type=int, default=0)
    ap.add_argument("--expected-failures")
    args = ap.parse_args()

    listed = expected_failures(args.expected_failures, args.upstream, args.run) if args.expected_failures else set()
    passed = failed = skipped = met = warnings = 0
    for scenario, checks in sorted(checks_by_scenario(args.out).items()):
        lines = []
        if not checks:
            failed += 1
            lines.append("CRASH    the scenario threw before its first check; see log.txt")
        for check in checks:
            status, name = check["status"], check["id"]
            text = f"{status:8s} {name}: {(check.get('errorMessage') or '')[:400]}"
            if status == "SUCCESS":
                passed += 1
            elif status == "FAILURE" and (scenario, name) in listed:
                met += 1
                listed.remove((scenario, name))
                lines.append(f"EXPECTED {text}")
            elif status == "FAILURE":
                failed += 1
                lines.append(text)
            elif status == "SKIPPED":
                skipped += 1
                lines.append(text)
            elif status == "WARNING":
                warnings += 1
                lines.append(text)
        if args.passed is None:
            print(f"{scenario}: {sum(c['status'] == 'SUCCESS' for c in checks)} passed")
        for line in lines:
            if args.passed is None or line.startswith(("FAILURE", "CRASH", "WARNING")):
                print(f"    {scenario}  {line}")

    for scenario, check in sorted(listed):
        failed += 1
        print(f"    {scenario}  {check} is listed in {args.expected_failures}, and did not fail: take it off the list")
    if args.passed is not None and (passed, skipped) != (args.passed, args.skipped):
        failed += 1
        print(f"    {args.passed} passed and {args.skipped} skipped were expected, not {passed} and {skipped}")
    if passed + failed == 0:
        failed += 1
        print("    the suite ran no check; see log.txt")
    if warnings and args.passed is None:
        print(f"{warnings} warnings")
    print(f"{passed} passed, {failed} failed" + (f", {skipped + met} skipped" if skipped + met else ""))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
