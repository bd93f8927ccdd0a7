#!/usr/bin/env bash
# tests/fuzz/run.sh [SECONDS] [TARGET..]: gives each fuzz target so many seconds (20) under libFuzzer, which follows the coverage.
# What it finds new goes to fuzz/corpus, which is not kept; an input on which a target fails is printed and goes to fuzz/artifacts: put it into
# tests/fuzz/corpus.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/lib.sh
source tests/lib.sh
FUZZ_VERSION=0.13.2
seconds=${1:-20}
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls tests/fuzz/corpus)

if [ "$(cargo fuzz --version 2>/dev/null)" != "cargo-fuzz $FUZZ_VERSION" ]; then
  say "installing cargo-fuzz $FUZZ_VERSION"
  timeout 900 cargo install --debug --quiet --locked --root "$CACHE/cargo" "cargo-fuzz@$FUZZ_VERSION"
fi
# No sanitizer of memory: raincheck has no unsafe code. So the usual toolchain will do.
fuzz=(cargo fuzz)
"${fuzz[@]}" build --sanitizer none any

lane() {
  mkdir -p "fuzz/corpus/$1"
  FUZZ_TARGET=$1 "${fuzz[@]}" run --sanitizer none any "fuzz/corpus/$1" "tests/fuzz/corpus/$1" -- \
    -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 2>&1 |
    awk -v target="$1" '/number_of_executed_units/ { print target ": " $2 " executions"; next } { print }'
}

arm
scratch
# One for each core.
lanes "$(nproc)" "${targets[@]}"
! grep -q '^0 passed, 1 failed' "$SCRATCH"/*.out
