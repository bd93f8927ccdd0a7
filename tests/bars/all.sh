#!/usr/bin/env bash
# tests/bars/all.sh [--size 0.1]: every bar (docs/bars.md), three at a time: they wait more than they work. Each has a seed of
# its own, which its line names. The last line sums them.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
SIZE=0.1
BARS=(r8 r7 r6 r1 r2 r3 r4 r5 r9 r10 r11 r12 r13 r14 r16 r20 idle held floods)

main() {
  [ "${1:-}" != --size ] || SIZE=$2
  arm
  scratch
  # Not three times at once.
  cargo test --locked --quiet --no-run --test bars --manifest-path "$ROOT/Cargo.toml"
  "$TESTS/bars/r16" --build-only
  lanes 3 "${BARS[@]}"
  closing_line "$SCRATCH"/*.out
  ! grep -qE '^[0-9]+ passed, [1-9]' "$SCRATCH"/*.out
}

# shellcheck disable=SC2317  # `lanes` calls it
lane() {
  local status=0
  run "$TESTS/bars/$1" --size "$SIZE" || status=$?
  if [ "$status" -eq 0 ]; then say "1 passed, 0 failed"; else say "0 passed, 1 failed"; fi
}

main "$@"
