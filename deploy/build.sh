#!/usr/bin/env bash
# deploy/build.sh [TARGET]: build what is shipped, for this machine or for TARGET, and print where it is. Two builds and a minute of
# calls between them, so that the compiler knows what runs often: that is made fast, and the rest is made small (profile-guided
# optimisation). The linker puts what a start runs in one place, and what other work runs in the next: the system loads a program in
# pieces, and keeps in memory what it loaded.
#
# TARGET is x86_64-unknown-linux-musl or aarch64-unknown-linux-musl, a program that needs nothing but the kernel, or
# x86_64-pc-windows-gnu. What does not run here has one build: a profile fits only the target that it was recorded on, because the
# names of functions have the target in them.
#
# Needs rustup, a C compiler, make, Python 3.9, redis-server and openssl; for musl, zig (deploy/targets.sh), and for Windows, mingw-w64.
# With cargo-auditable the program carries the list of its crates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=deploy/targets.sh
source deploy/targets.sh
mkdir -p -- "${CARGO_TARGET_DIR:-target}"
target=$(cd -- "${CARGO_TARGET_DIR:-target}" && pwd)
# Whatever folder cargo is called in.
[ -z "${CARGO_TARGET_DIR:-}" ] || export CARGO_TARGET_DIR=$target
host=$(rustc -vV | sed -n 's/^host: //p')
machine=${1:-$host}
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
shipped=$target/shipped${1:+/$1}
profile=$shipped/raincheck.profdata
records=$shipped/records
order=$shipped/order
# The form of an option of the linker: a compiler links for glibc, and lld itself for musl.
linked=-Clink-arg=-Wl,
linker=''
ending=''
case ${1:-} in
  '') pages "$host" ;;
  *-linux-musl)
    musl "$1"
    rustup target add "$1" >&2
    linked=-Clink-arg= linker=-Clinker=rust-lld
    ;;
  x86_64-pc-windows-gnu)
    windows
    rustup target add "$1" >&2
    ending=.exe
    ;;
  *) echo "error: $1: only for this machine, for musl, and for Windows on x86_64" >&2; exit 2 ;;
esac

# build FOLDER FLAG: with --target, so that the flag is for the program only, and not for what runs while it is built.
build() {
  local command=(build)
  ! cargo auditable --version >/dev/null 2>&1 || command=(auditable build)
  CARGO_TARGET_DIR=$shipped/$1 RUSTFLAGS="${RUSTFLAGS:-} $2" \
    cargo "${command[@]}" --profile dist --locked --bin raincheck --target "$machine" >&2
}

# ship FOLDER: what was built there is what is shipped.
ship() {
  cp "$shipped/$1/$machine/dist/raincheck$ending" "$shipped/raincheck$ending"
  echo "$shipped/raincheck$ending"
}

cargo auditable --version >/dev/null 2>&1 \
  || echo "!!! THE PROGRAM WILL NOT CARRY THE LIST OF ITS CRATES: cargo install --locked cargo-auditable" >&2
if [ "${machine%%-*}" != "${host%%-*}" ] || [ -n "$ending" ]; then
  build plain ""
  ship plain
  exit
fi
# Before the first build, which takes minutes.
for program in python3 redis-server openssl; do
  command -v "$program" >/dev/null || { echo "error: $program is missing: the calls between the builds need it; install it" >&2; exit 1; }
done
[ -x "$profdata" ] || rustup component add llvm-tools >&2 \
  || { echo "error: llvm-profdata is missing, and rustup did not add its component, llvm-tools: see above" >&2; exit 1; }
rm -rf "$records"
mkdir -p "$records/starts" "$records/loads"
build recorded "-Cprofile-generate=$records -Cllvm-args=-pgo-temporal-instrumentation"
for part in starts loads; do
  LLVM_PROFILE_FILE=$records/$part/%m-%p.profraw benches/train "$shipped/recorded/$machine/dist/raincheck" $part >&2
  "$profdata" merge --output "$records/$part.profdata" "$records/$part"/*.profraw
  # The functions that ran, so that those which ran together are near each other.
  "$profdata" order --output "$records/$part.order" "$records/$part.profdata"
done
"$profdata" merge --output "$profile" "$records"/*.profdata
awk '!/^#/ && !seen[$0]++' "$records"/{starts,loads}.order > "$order"
# Hot, and so inlined much, is what makes up 95 % of all that ran, and cold, and so made small, is the last 0.1 %, such as the
# start of the program. LLVM would say 99 % and 0.0001 %: a program that is a tenth larger, and no faster.
guided="-Cprofile-use=$profile -Cllvm-args=-profile-summary-cutoff-hot=950000 -Cllvm-args=-profile-summary-cutoff-cold=999000"
ordered="$linked--symbol-ordering-file=$order $linked--no-warn-symbol-ordering"
# lld can do that, and is what Rust links with for x86_64 and here for musl.
# shellcheck disable=SC2086
if echo 'fn main() {}' | rustc ${RUSTFLAGS:-} $linker $ordered --target "$machine" -o "$records/probe" - 2>/dev/null; then
  guided+=" $ordered"
else
  echo "!!! the linker cannot order functions: the program will take some 2 MiB more memory" >&2
fi
build guided "$guided"
ship guided
