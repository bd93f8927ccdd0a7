# shellcheck shell=bash
# Sourced: what deploy/build.sh and the tests share about targets.

# musl TARGET: from here on cargo builds programs for TARGET, such as aarch64-unknown-linux-musl, that need nothing but the kernel. C is
# compiled by zig, which has the headers of musl for each kind of processor; Rust brings musl itself, and the linker.
# Needs zig in PATH, or ziglang of PyPI in the Python that PYTHON names.
musl() {
  local name=${1//-/_} here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  ZIG=$(command -v zig || "${PYTHON:-python3}" -c 'import ziglang; print(f"{ziglang.__path__[0]}/zig")' 2>/dev/null) \
    || { echo "error: zig is missing: python3 -m pip install ziglang" >&2; return 1; }
  export ZIG ZIG_TARGET=${1/-unknown/} "CC_$name=$here/zig-cc" "CARGO_TARGET_${name^^}_LINKER=rust-lld"
  pages "$1"
}

# pages TARGET: kernels of aarch64 have pages of 4, 16 or 64 KiB. jemalloc ends at its start where they are larger than it was built
# for, and by itself it is built for those of the machine that builds it.
pages() { [[ $1 != aarch64-* ]] || export JEMALLOC_SYS_WITH_LG_PAGE=16; }
