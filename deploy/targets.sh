# shellcheck shell=bash
# Sourced: what deploy/build.sh and the tests share about targets.

# musl TARGET: from here on cargo builds programs for TARGET, such as aarch64-unknown-linux-musl, that need nothing but the kernel. zig
# has the headers of musl for each kind of processor; Rust brings musl itself, and the linker.
musl() {
  local name=${1//-/_}
  zig "$1" "${1/-unknown/}"
  export "CARGO_TARGET_${name^^}_LINKER=rust-lld"
  pages "$1"
}

# zig TARGET NAME: from here on zig compiles C for TARGET, whose name it has as NAME. Needs zig in PATH, or ziglang of PyPI in the Python
# that PYTHON names.
zig() {
  local here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  ZIG=$(type -P zig || "${PYTHON:-python3}" -c 'import ziglang; print(f"{ziglang.__path__[0]}/zig")' 2>/dev/null) \
    || { echo "error: zig is missing: python3 -m pip install ziglang" >&2; return 1; }
  export ZIG ZIG_TARGET=$2 "CC_${1//-/_}=$here/zig-cc"
}

# pages TARGET: kernels of aarch64 have pages of 4, 16 or 64 KiB. jemalloc ends at its start where they are larger than it was built
# for, and by itself it is built for those of the machine that builds it.
pages() { [[ $1 != aarch64-* ]] || export JEMALLOC_SYS_WITH_LG_PAGE=16; }

# windows: from here on cargo builds programs for x86_64-pc-windows-gnu. aws-lc brings what an assembler would make, so that none is
# needed.
windows() { export AWS_LC_SYS_PREBUILT_NASM=1; }
