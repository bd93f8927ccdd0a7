#!/usr/bin/env bash
# tests/conformance/all.sh: the official suite through raincheck, in front of every plain upstream, on both durable stores
# and, on the embedded one, in front of programs that raincheck runs itself.
# The counts are exact: a check that silently stopped running fails as loudly as one that broke. Takes two minutes.
# tests/conformance/all.sh LANE... runs only these, e.g. embedded-legacy; KEEP_LOGS=1 keeps what they wrote.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
HERE=$TESTS/conformance

# lane: store-upstream[-without-rules], or stdio-upstream for a program on the embedded store. Each line below: run, checks that pass, checks that the suite itself skips: one of
# tasks that it has not rewritten yet, 42 of an extension that the upstreams do not offer, and two of list changes, which
# the legacy upstream does not announce. In front of a program, and in front of the modern upstream, which takes no session, so
# that raincheck gives one, four checks of server-sse-polling are not run: whether the streams of single answers can be
# resumed, where an answer that comes within a second is no stream (2025-11-25, basic/transports: the server returns either;
# event ids are a MAY).
expectations() {
  case $1 in
    stdio-legacy) printf '%s\n' "2025-11-25 80 0" "2026-07-28 147 2" "tasks 44 1" ;;
    *-legacy-without-rules | *-modern-without-rules) say "tasks-without-rules 41 1" ;;
    *-legacy) printf '%s\n' "2025-11-25 84 0" "2026-07-28 147 2" "tasks 44 1" ;;
    stdio-modern) printf '%s\n' "2026-07-28 152 0" "tasks 44 1" ;;
    *-modern) printf '%s\n' "2025-11-25 80 0" "2026-07-28 152 0" "tasks 44 1" ;;
    *-dual) say "all 234 43" ;;
    *) die "no such lane: $1" ;;
  esac
}

# The suite gives the first frame of a stream 600 ms, in which a Python may not even have started: the processes for the
# two sets of capabilities that it declares there are started before it.
warm_up() {
  timeout 120 python3 - "$PROXY" <<'PY'
import json, sys, urllib.request
for capabilities in ({}, {"elicitation": {}}):
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": capabilities}
    params = {"_meta": {"io.modelcontextprotocol/" + key: value for key, value in meta.items()}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
    request = urllib.request.Request(sys.argv[1], json.dumps(body).encode(), headers)
    assert b'"tools"' in urllib.request.urlopen(request).read()
PY
}

lane() {
  local name=$1 dir=$SCRATCH/$1 config=$HERE/raincheck.toml store kind proxy what passed skipped
  mkdir "$dir"
  [[ $name != *-without-rules ]] || config=$HERE/no-rules.toml
  IFS=- read -r store kind _ <<<"$name"
  REDIS='' UPSTREAM='' PROGRAM=()
  if [ "$store" = stdio ]; then program "$kind"; else upstream "$kind" "$dir/upstream.log"; fi
  [ "$store" != redis ] || redis "$dir"
  raincheck "$UPSTREAM" "${REDIS:-redb:$dir/tasks.redb}" "$config" "$dir/raincheck.log" "${PROGRAM[@]}"
  proxy=$STARTED
  [ "$store" != stdio ] || warm_up
  while read -r what passed skipped; do
    say "$what"
    "$HERE/run.sh" "$PROXY" "${what%-without-rules}" "$dir/$what" --upstream "$kind" --run "$what" \
      --passed "$passed" --skipped "$skipped" --expected-failures "$HERE/expected-failures" || FAILED=yes
  done < <(expectations "$name")
  if ! kill -0 "$proxy"; then
    say "raincheck ended by itself"
    say "0 passed, 1 failed"
    FAILED=yes
  fi
  [ -z "${FAILED:-}" ] || tail -n 40 "$dir/raincheck.log"
}

LANES=("$@")
[ $# -gt 0 ] || LANES=(embedded-legacy embedded-modern embedded-dual redis-legacy redis-modern redis-dual
  embedded-legacy-without-rules embedded-modern-without-rules stdio-legacy stdio-modern)

arm
scratch
lanes 3 "${LANES[@]}"
cd "$SCRATCH"
LINE=$(closing_line "${LANES[@]/%/.out}")
say "$LINE"
[[ $LINE == *" 0 failed"* ]]
