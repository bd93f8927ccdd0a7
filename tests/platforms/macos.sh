#!/usr/bin/env bash
# tests/platforms/macos.sh: compile all of raincheck for macOS, its tests included, with every lint. Nothing is linked, because the
# libraries of macOS are not here, and so nothing is run.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=deploy/targets.sh
source "$ROOT/deploy/targets.sh"
cd "$ROOT"
TARGET=aarch64-apple-darwin
arm
rustup target list --installed | grep -qx "$TARGET" || run timeout 300 rustup target add "$TARGET"
# The C code of the crates is compiled, too: their build scripts have no check.
export PYTHON=$CACHE/python-zig/bin/python
zig "$TARGET" aarch64-macos.11.0
if run timeout 900 cargo clippy --all-targets --all-features --locked --quiet --target "$TARGET" -- -D warnings; then
  say "1 passed, 0 failed"
else
  say "0 passed, 1 failed"
fi
