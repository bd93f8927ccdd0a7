#!/usr/bin/env bash
# deploy/package.sh BINARY OUT: make, of a built program, what can be published. It publishes nothing. Needs cargo and Python 3.11.
#
#   raincheck-VERSION.cdx.json               all crates that raincheck is made of (CycloneDX)
#   raincheck-VERSION-TARGET.tar.gz          for /usr/local: the program, pages for `man`, completions, the unit of systemd
#   raincheck-VERSION.tgz                    for npm: the launcher, for `npx raincheck`
#   raincheck-SYSTEM-MACHINE-VERSION.tgz     for npm: the program
#   raincheck-VERSION-py3-none-TAG.whl       for PyPI: the program, for `uvx raincheck`
#
# What is shipped is built by deploy/build.sh, with cargo-auditable installed, so that the program carries the list of its
# crates, and on the oldest glibc that it shall run on: the tag of the wheel says that of the machine it was built on.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: deploy/package.sh BINARY OUT" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath -- "$1")
mkdir -p -- "$2"
out=$(realpath -- "$2")
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)

python3 - "$binary" <<'PY'
import sys
import binary
if not binary.read(sys.argv[1]).is_auditable:
    print("!!! THE PROGRAM DOES NOT CARRY THE LIST OF ITS CRATES: install cargo-auditable and build it with deploy/build.sh", file=sys.stderr)
PY
sbom=$out/raincheck-$version.cdx.json
python3 -m sbom "$binary" "$sbom" "$version"
python3 -m archive "$binary" "$out" "$version"
python3 -m npm.pack "$binary" "$out" "$version"
python3 -m pypi.wheel "$binary" "$out" "$version" "$sbom"
