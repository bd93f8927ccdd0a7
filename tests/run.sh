#!/usr/bin/env bash
# tests/run.sh [unit|conformance|interop|bars]...: install what the tests need (tests/setup.sh), then run everything, or the parts.
#   unit          every Rust test but tests/interop.rs and tests/bars: the modules, the store contract, the suite, the tidy test, doc tests
#   conformance   the official suite through raincheck, in front of each plain upstream and on each durable store
#   interop       clients and servers written by others, talking to raincheck or wrapped by it
#   bars          what must hold when replicas and Redis are killed, frozen and emptied, at a tenth of its size (docs/bars.md)
# The last line sums what ran: "N passed, N failed[, N skipped]". Exit 0 if nothing failed.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"

main() {
  local part parts=("$@") line
  [ $# -gt 0 ] || parts=(unit interop conformance bars)
  for part in "${parts[@]}"; do
    case $part in
      unit | conformance | interop | bars) ;;
      *) die "no such part: $part (unit, conformance, interop or bars)" ;;
    esac
  done
  arm
  scratch
  run "$TESTS/setup.sh"
  for part in "${parts[@]}"; do
    say "--- $part"
    "$part" 2>&1 | tee "$SCRATCH/$part.log" || broken "$part"
    # The part's own sum; the lines before it are what it is the sum of.
    grep -E '^[0-9]+ passed, [0-9]+ failed' "$SCRATCH/$part.log" | tail -n 1 >"$SCRATCH/$part.sum"
  done
  line=$(cd "$SCRATCH" && closing_line "${parts[@]/%/.sum}")
  say "--- all"
  say "$line"
  [[ $line == *" 0 failed"* ]]
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
    cargo nextest run --locked -E 'not binary(interop) and not binary(bars)' || status=1
  else
    read -ra arguments < <(rust_tests)
    cargo test --locked --no-fail-fast --lib --bins "${arguments[@]}" || status=1
  fi
  cargo test --locked --doc || status=1
  return "$status"
}

# The test binaries that need nothing but Rust and redis-server, as cargo's arguments.
rust_tests() {
  local file
  for file in tests/*.rs tests/*/main.rs; do
    case $file in
      tests/interop.rs | tests/bars/main.rs | 'tests/*/main.rs') ;;
      */main.rs) printf -- '--test %s ' "$(basename "$(dirname "$file")")" ;;
      *) printf -- '--test %s ' "$(basename "$file" .rs)" ;;
    esac
  done
}

conformance() { cargo build --locked --bin raincheck && "$TESTS/conformance/all.sh"; }

bars() { "$TESTS/bars/all.sh"; }

interop() { cargo build --locked --bin raincheck && "$TESTS/interop/all.sh"; }

main "$@"
