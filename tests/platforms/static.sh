#!/usr/bin/env bash
# tests/platforms/static.sh [x86_64|aarch64]: build the program that needs nothing but the kernel, with the development profile, and run
# tests/platforms/static.py on it. For aarch64, qemu runs it as the kernel would: by the kernel's table of interpreters, which is
# this run's own (Linux 6.7).
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=deploy/targets.sh
source "$ROOT/deploy/targets.sh"
cd "$ROOT"
MACHINE=${1:-x86_64}
TARGET=$MACHINE-unknown-linux-musl
arm
scratch
[ "$MACHINE" = "$(uname -m)" ] || QEMU=$(command -v "qemu-$MACHINE-static") || die "qemu-$MACHINE-static is missing: install qemu-user-static"
rustup target list --installed | grep -qx "$TARGET" || run timeout 300 rustup target add "$TARGET"
export PYTHON=$CACHE/python-zig/bin/python
musl "$TARGET"
began=$SECONDS
# Without what a debugger needs: nobody looks into this program.
CARGO_PROFILE_DEV_DEBUG=none run cargo build --locked --quiet --bin raincheck --target "$TARGET"
say "built in $((SECONDS - began)) s"

export QEMU=${QEMU:-}
# shellcheck disable=SC2016  # the inner shell expands it
run timeout 600 unshare --user --map-root-user --mount --net sh -euc '
  ip link set lo up
  if [ -n "$QEMU" ]; then
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    # The first bytes of a program for aarch64. F: qemu is opened now, and need not be in the root.
    printf %s ":raincheck:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$QEMU:F" \
      >/proc/sys/fs/binfmt_misc/register
  fi
  exec python3 "$@"' sh "$TESTS/platforms/static.py" "${CARGO_TARGET_DIR:-$ROOT/target}/$TARGET/debug/raincheck" "${@:2}"
