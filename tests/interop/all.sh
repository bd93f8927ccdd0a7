#!/usr/bin/env bash
# tests/interop/all.sh: clients and servers written by others, through raincheck. About three minutes.
#   rmcp                 tests/interop.rs: rmcp 3.9 as a client, in front of the legacy and the modern upstream and of rmcp servers
#   legacy, modern       clients.mjs: ext-tasks 0.2.2 on client 2.4.0, in front of each
#   legacy-sse           the same, in front of the legacy upstream over HTTP+SSE (2024-11-05), which raincheck finds out
#   dialect-legacy,      dialect.mjs and dialect.py: the tasks of 2025-11-25 as the TypeScript SDK 1.32.2, ext-tasks, mcpdo and the
#   dialect-modern       Python SDK 1.30 speak them, in front of each
#   everything           everything.mjs: server-everything 2026.8.31 as the wrapped server
#   sse                  the same server over HTTP+SSE
#   program              the same server, run by raincheck over standard input and output
#   plain                plain.mjs: clients without Tasks (mcp 1.30 and 2.3, SDK 1.32, client 2.4, fastmcp 3 and 4), in front of each
#   patience             patience.mjs: some of them that give up after a minute, and a tool of five; `PATIENCE_SCALE=1` at full size
#   again                again.mjs: ten clients at full size that make a call of 150 s again until they have its result; only where it is
#                        named, and HOSTS_SECONDS=150 tests/setup.sh installs what it needs. RAINCHECK_RENEW=1 writes the table
#   repeats              repeats.mjs: agents whose models make a call again that timed out; RAINCHECK_RENEW=1 at full size, and writes the
#                        tables (needs root, as hosts)
#   hosts                hosts.mjs: clients, libraries and agents in their default settings, a raincheck without any, a silent tool of 75 s
#                        and a network of their own (needs root); HOSTS_SECONDS=150,330 at full size: ten to fifteen minutes, and also
#                        mcpc, Codex, Claude Code, Qwen Code, libraries on mcp 2, and rmcp
#   agents               agents.mjs: langchain-mcp-adapters, pydantic-ai, openai-agents and opencode, whose calls become tickets
#   large                large.mjs: results of 2 MiB, for clients that refuse events of 1 MiB
#   spellings            spellings.mjs: a call that a rule refuses, spelled in thirty ways, in front of server-everything and fastmcp 3
#   desync               desync.mjs: a Node server that answers before it reads, and clients that announce bytes that never come
#   peer                 peer.mjs: who a FastMCP server takes a client for that lies about its address
#   signin               signin.mjs: the TypeScript and the Python SDK sign in at oidc-provider, and renew their token during a task
#   board                tests/board: the board of the admin listener, in Chromium
#   web                  tests/board/web.mjs: web pages with ext-tasks 0.2.2 on client 2.4.0, in Chromium
#   polling              polling.mjs: how late ext-tasks hears of the ends of many short tasks, and how often it asks
#   sleeper              sleeper.mjs: server-everything behind 6 s of sleep, for the client 2.4 over HTTP and over a pipe
#   pages                pages.mjs: the commands that the pages show, run as a reader runs them, in a network of their own (needs root)
#   webhooks             webhooks.mjs: the library standardwebhooks verifies what a receiver of `[[notify]]` gets
#   examples             examples.mjs: what is in examples/, in front of server-everything
#   strangers            strangers.mjs: 20 servers in five languages and 7 clients that no other lane runs, directly and through raincheck;
#                        RAINCHECK_RENEW=1 writes the tables
#   jobs                 jobs.mjs: five servers whose tools start jobs, with `[[jobs]]`, in front of a fake of the service of each
#   wrapped              wrapped.mjs: every server in rows.mjs, wrapped unmodified; `node wrapped.mjs ROW..` runs some
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
HERE=$TESTS/interop

lane() {
  local dir=$SCRATCH/$1
  mkdir "$dir"
  if [ "$1" = rmcp ]; then
    rust_clients "$dir" || FAILED=yes
    return
  fi
  case $1 in
    wrapped | strangers | jobs | plain | patience | agents | large | spellings | desync | peer | polling | sleeper | signin | webhooks)
      RAINCHECK=$(raincheck_path) SCRATCH=$dir EVERYTHING=$EVERYTHING node_tests "$1.mjs" "$dir"
      [ -z "${FAILED:-}" ] || find "$dir" -name raincheck.log -exec grep -hv stdio::stderr {} + | tail -n 60
      return
      ;;
    again)
      SECONDS_MAX=1800
      RAINCHECK=$(raincheck_path) SCRATCH=$dir node_tests again.mjs "$dir"
      return
      ;;
    repeats)
      NETWORK=("${ALONE[@]}") SECONDS_MAX=${RAINCHECK_RENEW:+3000}
      RAINCHECK=$(raincheck_path) SCRATCH=$dir node_tests repeats.mjs "$dir"
      return
      ;;
    hosts)
      # The agents reach nothing but the script of their model.
      NETWORK=("${ALONE[@]}") SECONDS_MAX=${HOSTS_SECONDS:+1800}
      local rust=
      if [ -n "${HOSTS_SECONDS:-}" ]; then
        long_calls "$dir" >"$dir/rmcp.out" &
        rust=$!
        PIDS+=("$rust")
      fi
      RAINCHECK=$(raincheck_path) SCRATCH=$dir node_tests hosts.mjs "$dir"
      [ -z "$rust" ] || wait "$rust" || FAILED=yes
      [ -z "$rust" ] || cat "$dir/rmcp.out"
      return
      ;;
    pages)
      # The pages' ports may be in use on this machine.
      NETWORK=("${ALONE[@]}")
      RAINCHECK=$(raincheck_path) SCRATCH=$dir EVERYTHING=$EVERYTHING node_tests pages.mjs "$dir"
      return
      ;;
    board | web)
      RAINCHECK=$(raincheck_path) SCRATCH=$dir node_tests "../board/$1.mjs" "$dir"
      [ -z "${FAILED:-}" ] || tail -n 60 "$dir"/*/raincheck.log
      return
      ;;
    everything | examples) everything "$dir" streamableHttp mcp ;;
    sse) everything "$dir" sse sse ;;
    program) UPSTREAM= ;;
    *) upstream "${1#dialect-}" "$dir/upstream.log" ;;
  esac
  if [ "$1" = program ]; then set -- "$1" "$(node_path)" "$EVERYTHING" stdio; fi
  raincheck "$UPSTREAM" "redb:$dir/tasks.redb" "$TESTS/conformance/raincheck.toml" "$dir/raincheck.log" "${@:2}"
  export RAINCHECK_URL=$PROXY UPSTREAM_URL=$UPSTREAM
  case $1 in
    everything | sse | program) node_tests everything.mjs "$dir" ;;
    examples) examples "$dir" ;;
    dialect-*)
      SCRATCH_DIR=$dir node_tests dialect.mjs "$dir"
      python_tests dialect.py "$dir"
      ;;
    *) node_tests clients.mjs "$dir" ;;
  esac
  [ -z "${FAILED:-}" ] || tail -n 40 "$dir/raincheck.log"
}

EVERYTHING=$CACHE/npm-interop/node_modules/@modelcontextprotocol/server-everything/dist/index.js

# everything DIR TRANSPORT PATH
everything() {
  local port
  port=$(free_port)
  PORT=$port start "$1/upstream.log" "$(node_path)" \
    "$EVERYTHING" "$2"
  wait_port "$port" "$1/upstream.log"
  UPSTREAM=http://127.0.0.1:$port/$3
}

examples() {
  (cd "$ROOT" && cargo build --locked --quiet --example rmcp_client) || FAILED=yes
  RMCP_CLIENT=${CARGO_TARGET_DIR:-$ROOT/target}/debug/examples/rmcp_client node_tests examples.mjs "$1"
}

# node_tests FILE DIR: run it, show it, and say the sum the way everything here does.
NETWORK=()
SECONDS_MAX=
ALONE=(unshare --net sh -c 'ip link set lo up && exec "$@"' sh)
node_tests() {
  run timeout "${SECONDS_MAX:-420}" "${NETWORK[@]}" "$(node_path)" --test-reporter=tap "$HERE/$1" >"$2/tests.tap" 2>&1 || FAILED=yes
  tap "$2/tests.tap"
}

tap() {
  # An error of several lines, and where it was thrown.
  awk '/^ *(not )?ok |^ *(error|expected|actual): |Error|^ *# .*: [0-9.]+ s(,|$)/ || more > 0 { print; found = 1; more-- }
    /^ *error: \|-/ { more = 8 }
    END { exit !found }' "$1" || cat "$1"
  awk '/^# (pass|fail|cancelled|skipped) / { n[$2] = $3 }
    END { if (!("pass" in n)) n["fail"] = 1
          printf "%d passed, %d failed, %d skipped\n", n["pass"], n["fail"] + n["cancelled"], n["skipped"] }' "$1"
}

# python_tests FILE DIR: the same for a file that prints TAP.
python_tests() {
  run timeout 300 "$CACHE/python-legacy/bin/python" "$HERE/$1" >"$2/python.tap" 2>&1 || FAILED=yes
  tap "$2/python.tap"
}

# Without HOSTS_SECONDS: nextest ends a test after two minutes, and `long_calls` has those of full size.
rust_clients() {
  local status=0
  cd "$ROOT"
  if cargo nextest --version >/dev/null 2>&1; then
    run env -u HOSTS_SECONDS cargo nextest run --locked --test interop >"$1/tests.log" 2>&1 || status=1
  else
    run env -u HOSTS_SECONDS cargo test --locked --test interop >"$1/tests.log" 2>&1 || status=1
  fi
  cat "$1/tests.log"
  rust_line "$1/tests.log" "$status"
  return "$status"
}

# long_calls DIR: rmcp at full size, without the limits that nextest has for a test.
long_calls() {
  local status=0
  (cd "$ROOT" && cargo test --locked --test interop rmcp_long -- --nocapture) >"$1/rmcp.log" 2>&1 || status=1
  # In front of each upstream.
  grep -q '^test result: ok\. 2 passed; 0 failed; 0 ignored' "$1/rmcp.log" || status=1
  grep -E '^(test |.*: [0-9.]+ s$)|panicked' "$1/rmcp.log" || cat "$1/rmcp.log"
  rust_line "$1/rmcp.log" "$status"
  return "$status"
}

LANES=("$@")
[ $# -gt 0 ] || LANES=(hosts patience repeats signin pages board web strangers jobs wrapped plain agents large spellings desync peer polling sleeper webhooks rmcp legacy legacy-sse modern dialect-legacy dialect-modern everything sse program examples)

arm
scratch
# Four of them, hosts, patience, repeats and signin, mostly wait.
lanes 3 "${LANES[@]}"
cd "$SCRATCH"
LINE=$(closing_line "${LANES[@]/%/.out}")
say "$LINE"
[[ $LINE == *" 0 failed"* ]]
