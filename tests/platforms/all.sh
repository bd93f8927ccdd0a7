#!/usr/bin/env bash
# tests/platforms/all.sh [LANE..]: raincheck where it is not built, or with another C library.
#   static           static.sh: a program that needs nothing but the kernel, in an empty root
#   macos            macos.sh: compiles for macOS, where nothing is run
#   windows          windows.sh: the program for Windows, run by wine
#   static-aarch64   the same for aarch64, run by qemu; only where it is named
# The last line of each lane has the time that it took.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

lane() {
  case $1 in
    static) "$TESTS/platforms/static.sh" x86_64 ;;
    static-aarch64) "$TESTS/platforms/static.sh" aarch64 ;;
    macos | windows) "$TESTS/platforms/$1.sh" ;;
    *) die "no such lane: $1" ;;
  esac
}

LANES=("$@")
[ $# -gt 0 ] || LANES=(windows macos static)
arm
scratch
# One after the other: each compiles.
lanes 1 "${LANES[@]}"
cd "$SCRATCH"
LINE=$(closing_line "${LANES[@]/%/.out}")
say "$LINE"
[[ $LINE == *" 0 failed"* ]]
