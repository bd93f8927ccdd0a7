#!/bin/sh
# install.sh: install raincheck for this user, from the files of a release. No rights of root are needed.
#
#   curl -fsSL ADDRESS/install.sh | sh
#
#   RAINCHECK_INSTALL   where to: bin/raincheck, its pages for `man` and completions below this folder [~/.local]
#   RAINCHECK_VERSION   another version, such as 0.2.0
#   RAINCHECK_ADDRESS   a copy of the releases: a folder of the name vVERSION in it has the files of that version
#
# Nothing is changed before the archive was found to have the sum that SHA256SUMS has for it.
set -eu

# Set in the copy that a release has: deploy/channels.py.
released_version=
released_address=

temporary=
new=
trap 'rm -rf ${temporary:+"$temporary"} ${new:+"$new"}' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

main() {
  version=${RAINCHECK_VERSION:-$released_version}
  address=${RAINCHECK_ADDRESS:-$released_address}
  version=${version#v}
  [ -n "$version" ] || fail "set RAINCHECK_VERSION: this copy of install.sh belongs to no release"
  [ -n "$address" ] || fail "set RAINCHECK_ADDRESS: this copy of install.sh belongs to no release"
  prefix=${RAINCHECK_INSTALL:-${HOME:?set HOME or RAINCHECK_INSTALL}/.local}
  name=raincheck-$version-$(target)
  from=$address/v$version
  temporary=$(mktemp -d)

  fetch "$from/$name.tar.gz" "$temporary/archive"
  fetch "$from/SHA256SUMS" "$temporary/sums"
  expected=$(sum_of "$name.tar.gz" <"$temporary/sums")
  [ -n "$expected" ] || fail "SHA256SUMS in $from has no sum of $name.tar.gz: nothing was installed"
  actual=$(sum "$temporary/archive")
  [ "$actual" = "$expected" ] \
    || fail "$name.tar.gz has the SHA-256 sum $actual, and SHA256SUMS has $expected: nothing was installed"

  tar -xzf "$temporary/archive" -C "$temporary"
  mkdir -p "$prefix/bin"
  # Renamed, so that a raincheck that runs from there goes on, and nobody starts half a file.
  new=$prefix/bin/.raincheck.$$
  cp "$temporary/$name/bin/raincheck" "$new"
  "$new" --version >/dev/null </dev/null || fail "the program does not run on this machine: nothing was installed"
  mv -f "$new" "$prefix/bin/raincheck"
  cp -R "$temporary/$name/share" "$prefix/"
  echo "$prefix/bin/raincheck is raincheck $version; try it: raincheck demo"
  case :${PATH:-}: in
    *:"$prefix/bin":*) ;;
    *) echo "$prefix/bin is not in PATH; add it: export PATH=\"$prefix/bin:\$PATH\"" ;;
  esac
}

fail() {
  echo "error: $1" >&2
  exit 1
}

# The name of the program that this machine runs, as Rust names it.
target() {
  system=$(uname -s)
  machine=$(uname -m)
  # Rosetta shows an Apple machine as the other one.
  [ "$system $machine" != "Darwin x86_64" ] || [ "$(sysctl -n sysctl.proc_translated 2>/dev/null)" != 1 ] || machine=arm64
  case $machine in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) system="$system on $machine" ;;
  esac
  case $system in
    Linux) echo "$machine-unknown-linux-musl" ;;
    Darwin) echo "$machine-apple-darwin" ;;
    *)
      fail "there is no raincheck for $system: this script installs it on Linux and macOS, on x86_64 and aarch64; for Windows (x86_64) the release has a .zip"
      ;;
  esac
}

# fetch ADDRESS FILE
fetch() {
  # No redirection leads from https to where others could change the files.
  case $1 in
    https:*) only="--proto =https" ;;
    *) only= ;;
  esac
  if command -v curl >/dev/null 2>&1; then
    # shellcheck disable=SC2086 # two words
    curl -fsSL $only -o "$2" "$1" || fail "$1 cannot be fetched: nothing was installed"
  elif command -v wget >/dev/null 2>&1; then
    wget -q -O "$2" "$1" || fail "$1 cannot be fetched: nothing was installed"
  else
    fail "neither curl nor wget is there: install one of them"
  fi
}

# The sum of a file.
sum() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1" | cut -d ' ' -f 1
  elif command -v shasum >/dev/null 2>&1; then
    shasum -a 256 "$1" | cut -d ' ' -f 1
  else
    fail "neither sha256sum nor shasum is there: the archive cannot be checked"
  fi
}

# The sum that the list on standard input has for a file.
sum_of() {
  while read -r listed file; do
    [ "$file" != "$1" ] || echo "$listed"
  done
}

# The last line, so that half a download of this script does nothing.
main
