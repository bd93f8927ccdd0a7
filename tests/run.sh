#!/usr/bin/env bash
# tests/run.sh [unit|conformance|interop|bars]...: install what the tests need (tests/setup.sh), then run everything, or the parts.
#   unit          every Rust test but tests/interop.rs and tests/bars: the modules, the store contract, the suite, the tidy test, doc
#                 tests, and tests/failpoints.rs, which has a build of the program of its own
#   conformance   the official suite through raincheck, in front of each plain upstream and on each durable store
#   interop       clients and servers written by others, talking to raincheck or wrapped by it
#   bars          what must hold when replicas and Redis are killed, frozen and emptied, at a tenth of its size (docs/bars.md)
# The last line sums what ran: "N passed, N failed[, N skipped]". Exit 0 if nothing failed.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

main() {
  local part parts=("$@") line began
  [ $# -gt 0 ] || parts=(unit interop conformance bars)
  for part in "${parts[@]}"; do
    case $part in
      unit | conformance | interop | bars) ;;
      *) die "no such part: $part (unit, conformance, interop or bars)" ;;
    esac
  done
  arm
  scratch
  timed "--- setup" run "$TESTS/setup.sh"
  for part in "${parts[@]}"; do
    say "--- $part"
    began=$SECONDS
    "$part" 2>&1 | tee "$SCRATCH/$part.log" || broken "$part"
    # The part's own sum; the lines before it are what it is the sum of.
    grep -E '^[0-9]+ passed, [0-9]+ failed' "$SCRATCH/$part.log" | tail -n 1 >"$SCRATCH/$part.sum"
    say "--- $part took $((SECONDS - began)) s"
  done
  line=$(cd "$SCRATCH" && closing_line "${parts[@]/%/.sum}")
  say "--- all"
  say "$line"
  [[ $line == *" 0 failed"* ]]
}

# timed NAME COMMAND...: run it, and say what it took as the lanes do.
timed() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" || status=$?
  say "$name took $((SECONDS - began)) s"
  return "$status"
}

# A part that failed without counting a failure (it did not compile, say) is one.
broken() {
  if ! tail -n 1 "$SCRATCH/$1.log" | grep -qE '^[0-9]+ passed, [1-9][0-9]* failed'; then
    say "$1 did not get to its end"
    say "0 passed, 1 failed" | tee -a "$SCRATCH/$1.log"
  fi
}

unit() {
  local status=0
  rust 2>&1 | tee "$SCRATCH/rust.log" || status=1
  rust_line "$SCRATCH/rust.log" "$status"
  return "$status"
}

rust() {
  local status=0 arguments
  if cargo nextest --version >/dev/null 2>&1; then
    timed "most" cargo nextest run --locked -E 'not binary(interop) and not binary(bars)' || status=1
    timed "failpoints" cargo nextest run --locked --features failpoints -E 'binary(failpoints)' --test-threads 8 || status=1
  else
    read -ra arguments < <(rust_tests)
    timed "most" cargo test --locked --no-fail-fast --lib --bins "${arguments[@]}" || status=1
    timed "failpoints" cargo test --locked --no-fail-fast --features failpoints --test failpoints -- --test-threads 8 || status=1
  fi
  timed "doc-tests" cargo test --locked --doc || status=1
  return "$status"
}

# The test binaries that need nothing but Rust and redis-server, as cargo's arguments.
rust_tests() {
  local file
  for file in tests/*.rs tests/*/main.rs; do
    case $file in
      tests/interop.rs | tests/failpoints.rs | tests/bars/main.rs | 'tests/*/main.rs') ;;
      */main.rs) printf -- '--test %s ' "$(basename "$(dirname "$file")")" ;;
      *) printf -- '--test %s ' "$(basename "$file" .rs)" ;;
    esac
  done
}

conformance() { cargo build --locked --bin raincheck && "$TESTS/conformance/all.sh"; }

bars() { "$TESTS/bars/all.sh"; }

interop() { cargo build --locked --bin raincheck && "$TESTS/interop/all.sh"; }

main "$@"
