#!/usr/bin/env bash
# deploy/package.sh BINARY OUT [HERE]: make, of a built program, what can be published. It publishes nothing. Needs cargo and Python 3.11.
# The program may be for another machine: HERE is then one of the same version that runs on this one, and makes pages and completions.
#
#   raincheck-VERSION-TARGET.cdx.json        all crates that raincheck is made of (CycloneDX)
#   raincheck-VERSION-TARGET.tar.gz          for /usr/local: the program, pages for `man`, completions, the unit of systemd
#   raincheck-VERSION-TARGET.zip             for Windows, in place of it: the program and its documents
#   raincheck_VERSION_ARCHITECTURE.deb       for Debian and Ubuntu
#   raincheck-VERSION.tgz                    for npm: the launcher, for `npx raincheck`
#   raincheck-SYSTEM-MACHINE-VERSION.tgz     for npm: the program
#   raincheck-VERSION-py3-none-TAG.whl       for PyPI: the program, for `uvx raincheck`
#   raincheck-VERSION-SYSTEM-MACHINE.mcpb    for clients with MCP Bundles
#   SHA256SUMS                               the sums of all files in OUT
#
# What is shipped is built by deploy/build.sh, with cargo-auditable installed, so that the program carries the list of its
# crates. On Linux it is static, for any distribution; one that uses glibc needs at least that of the machine it was built on.
set -euo pipefail
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: deploy/package.sh BINARY OUT [HERE]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath -- "$1")
runs=$(realpath -- "${3:-$1}")
mkdir -p -- "$2"
out=$(realpath -- "$2")
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)

read -r system target is_auditable < <(python3 - "$binary" <<'PY'
import sys
import binary
program = binary.read(sys.argv[1])
print(program.system, program.target, program.is_auditable)
PY
) || exit 1
[ "$is_auditable" = True ] \
  || echo "!!! THE PROGRAM DOES NOT CARRY THE LIST OF ITS CRATES: install cargo-auditable and build it with deploy/build.sh" >&2
[ "$("$runs" --version </dev/null)" = "raincheck $version" ] \
  || { echo "error: $runs does not run here as raincheck $version: name a program that does as third argument" >&2; exit 1; }
sbom=$out/raincheck-$version-$target.cdx.json
python3 -m sbom "$binary" "$sbom" "$version"
python3 -m archive "$binary" "$out" "$version" "$runs"
[ "$system" != linux ] || python3 -m deb "$binary" "$out" "$version" "$runs"
python3 -m npm.pack "$binary" "$out" "$version"
python3 -m pypi.wheel "$binary" "$out" "$version" "$sbom"
python3 -m mcpb "$binary" "$out" "$version"
python3 -m sums "$out"
