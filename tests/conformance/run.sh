#!/usr/bin/env bash
# tests/conformance/run.sh URL 2025-11-25|2026-07-28|tasks|all|SCENARIO OUTDIR [summary.py's arguments...]
# Run the official suite against URL (localhost or 127.0.0.1: its DNS-rebinding scenario needs that) and summarise it.
#   2025-11-25, 2026-07-28   every scenario of that revision; the suite leaves the tasks scenarios out
#   tasks                    the ten tasks-* scenarios
#   all                      every scenario at its own revision (needs an endpoint that serves both eras)
#   SCENARIO                 one; SUITE_ARGS are handed to the suite, e.g. SUITE_ARGS='--spec-version 2026-07-28'
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
[ $# -ge 3 ] || die "usage: run.sh URL WHAT OUTDIR [summary.py's arguments]"
URL=$1 WHAT=$2 OUT=$3
shift 3
arm

TASKS=(lifecycle capability-negotiation wire-fields request-state-removal mrtr-input request-headers
  dispatch-and-envelope status-notifications required-task-error mrtr-composition)
read -ra EXTRA <<<"${SUITE_ARGS:-}"

# The suite's exit code says only that something failed; summary.py reads what. Its limit is 30 s a scenario.
suite() {
  run timeout 600 "$(node_path)" "$CACHE/npm-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js" \
    server --url "$URL" -o "$OUT" "$@" "${EXTRA[@]}" >>"$OUT/log.txt" 2>&1 || true
}

mkdir -p "$OUT"
case $WHAT in
  2025-* | 2026-*) suite --suite all --spec-version "$WHAT" ;;
  all) suite --suite all ;;
  tasks) for scenario in "${TASKS[@]}"; do suite --scenario "tasks-$scenario"; done ;;
  *) suite --scenario "$WHAT" ;;
esac
python3 "$TESTS/conformance/summary.py" "$OUT" "$@"
