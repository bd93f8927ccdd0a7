#!/usr/bin/env bash
# tests/run.sh [all | PART...]: install what the tests need (tests/setup.sh), then run the tests.
#   (nothing)     what a change most likely breaks, from a fresh clone within 15 minutes on two cores: the Rust tests without those that
#                 take long (the lists that begin with SHORT below), the official suite on each durable store, and a client and a server
#                 of each official SDK (TypeScript, Python, Rust)
#   all           everything, as CI runs it: the parts below, one after the other
#   unit          every Rust test but tests/interop.rs and tests/bars: the modules, the store contract, the suite, the tidy test, doc
#                 tests, and tests/failpoints.rs, which has a build of the program of its own
#   interop       clients and servers written by others, talking to raincheck or wrapped by it
#   field         what people met elsewhere, tried on raincheck: tests/field/README.md
#   conformance   the official suite through raincheck, in front of each plain upstream and on each durable store
#   platforms     without a C library in an empty root, on Windows as wine is it, and compiled for macOS: tests/platforms/all.sh
#   bars          what must hold when replicas and Redis are killed, frozen and emptied, at a tenth of its size (docs/bars.md)
# The last line sums what ran: "N passed, N failed[, N skipped]". The line before it names what was not run. Exit 0 if nothing failed.
set -euo pipefail
# shellcheck source=tests/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
ALL=(unit interop field conformance bars)
# Other systems, and another C library: raincheck is compiled once more for each, so `all` leaves them out.
OTHERS=(platforms)
# What the short run is. It needs nothing that `tests/setup.sh short` does not install.
SHORT=
# Test programs that it does not even build: ten thousand histories on each store; helm, promtool and whole packages.
SHORT_BUILDS_NO=(model deploy)
# Of the other test programs, what these are part of the names of: what waits for leases, limits and pauses to end, what keeps both
# cores busy, and, last, what promtool judges.
SHORT_RUNS_NO=(claims_legacy:: clocks:: counted:: counted_reasons:: discover:: excerpts:: excerpts_kept:: hosted_ends:: floods:: heartbeat::
  held_carried:: held_replicas:: known_clients:: large_results:: learned_polls:: queued:: races::http redis_errs:: redis_fleet::
  given_up:: given_up_bounds:: given_up_callers:: given_up_cancels:: given_up_sse:: given_up_store:: slow_start:: stdio_memory:: stdio_sessions:: store_down:: subscribed_events:: unhurried:: webhooks:: webhooks_due::
  a_cluster_keeps_the_contract a_primary_behind_sentinels_keeps_the_contract both_sides_of_a_request_are_measured)
SHORT_INTEROP=(rmcp legacy modern dialect-legacy everything program)
SHORT_CONFORMANCE=(embedded-legacy redis-modern)

main() {
  local part parts=("$@") line began
  case $*: in
    :) SHORT=yes parts=(unit interop conformance) ;;
    all:) parts=("${ALL[@]}") ;;
  esac
  for part in "${parts[@]}"; do
    [[ " ${ALL[*]} ${OTHERS[*]} " == *" $part "* ]] || die "no such part: $part (all, ${ALL[*]}, ${OTHERS[*]})"
  done
  arm
  scratch
  temporary
  prepare
  for part in "${parts[@]}"; do
    say "--- $part"
    began=$SECONDS
    "$part" 2>&1 | tee "$SCRATCH/$part.log" || broken "$part"
    # The part's own sum; the lines before it are what it is the sum of.
    grep -E '^[0-9]+ passed, [0-9]+ failed' "$SCRATCH/$part.log" | tail -n 1 >"$SCRATCH/$part.sum"
    say "--- $part took $((SECONDS - began)) s"
  done
  left_behind >"$SCRATCH/left.sum"
  line=$(cd "$SCRATCH" && closing_line "${parts[@]/%/.sum}" left.sum)
  say "--- all"
  cat "$SCRATCH/left.sum"
  say "not run: $(not_run "${parts[@]}")"
  say "$line"
  [[ $line == *" 0 failed"* ]]
}

# Compiling is what takes long: the programs are built while packages are fetched.
prepare() {
  local setup arguments
  if [ -z "$SHORT" ]; then
    timed "--- setup" run "$TESTS/setup.sh"
    return
  fi
  say "Where nothing is built this takes a quarter of an hour on two cores. What is missing is installed first: redis-server, tmux and" \
    "python3-jsonschema from the distribution, and in ${CACHE/#$HOME/\~} Node 22, the official suite, and clients and servers" \
    "from npm and PyPI (1 GB; tests/setup.sh lists them). Meanwhile raincheck and its tests are built in ${CARGO_TARGET_DIR:-target}."
  start "$SCRATCH/setup.log" "$TESTS/setup.sh" short
  setup=$STARTED
  read -ra arguments < <(rust_tests)
  # What does not compile fails again in its part, which counts it.
  timed "--- build" run cargo test --locked --no-run --quiet --lib --bins "${arguments[@]}" --test interop || true
  timed "--- setup" wait "$setup" || { cat "$SCRATCH/setup.log" >&2 && die "tests/setup.sh failed"; }
}

# What was not run, for the last lines.
not_run() {
  if [ -n "$SHORT" ]; then
    printf '%s' "crashes at named points, the bars, the Rust tests in ${SHORT_BUILDS_NO[*]} ${SHORT_RUNS_NO[*]}, all lanes of interop but " \
      "${SHORT_INTEROP[*]}, and of conformance but ${SHORT_CONFORMANCE[*]} (tests/run.sh all runs them); "
  else
    local part
    for part in "${ALL[@]}"; do [[ " $* " == *" $part "* ]] || printf '%s' "$part, "; done
  fi
  say "clients, patience and bars at full size (tests/interop/all.sh and docs/bars.md tell how), platforms (tests/platforms/all.sh)"
}

# Tests have a temporary folder of this run's own, and leave nothing in it.
temporary() {
  export TMPDIR=$SCRATCH/tmp
  mkdir "$TMPDIR"
  # For the test whose program runs as nobody.
  chmod go+x "$SCRATCH" "$TMPDIR"
}

left_behind() {
  local left
  left=$(ls -A "$TMPDIR")
  if [ -n "$left" ] && [ -z "${KEEP_LOGS:-}" ]; then printf '%s\n' "left in the temporary folder:" "$left" "0 passed, 1 failed"; fi
}

# timed NAME COMMAND...: run it, and say what it took as the lanes do.
timed() {
  local name=$1 began=$SECONDS status=0
  shift
  "$@" || status=$?
  say "$name took $((SECONDS - began)) s"
  return "$status"
}

# A part that failed without counting a failure (it did not compile, say) is one.
broken() {
  if ! tail -n 1 "$SCRATCH/$1.log" | grep -qE '^[0-9]+ passed, [1-9][0-9]* failed'; then
    say "$1 did not get to its end"
    say "0 passed, 1 failed" | tee -a "$SCRATCH/$1.log"
  fi
}

unit() {
  local status=0
  rust 2>&1 | tee "$SCRATCH/rust.log" || status=1
  rust_line "$SCRATCH/rust.log" "$status"
  return "$status"
}

rust() {
  local status=0 arguments filter=() skip=()
  read -ra arguments < <(rust_tests)
  if [ -n "$SHORT" ]; then
    filter=(-E "kind(lib) | not ($(printf 'test(%s) | ' "${SHORT_RUNS_NO[@]}")none())")
    read -ra skip < <(printf -- '--skip %s ' "${SHORT_RUNS_NO[@]}"; say)
  fi
  if cargo nextest --version >/dev/null 2>&1; then
    timed "most" cargo nextest run --locked --lib --bins "${arguments[@]}" "${filter[@]}" || status=1
    [ -n "$SHORT" ] \
      || timed "failpoints" cargo nextest run --locked --features failpoints -E 'binary(failpoints)' --test-threads 8 || status=1
  else
    timed "most" cargo test --locked --no-fail-fast --lib --bins "${arguments[@]}" -- "${skip[@]}" || status=1
    [ -n "$SHORT" ] \
      || timed "failpoints" cargo test --locked --no-fail-fast --features failpoints --test failpoints -- --test-threads 8 || status=1
  fi
  [ -n "$SHORT" ] || kinds || status=1
  timed "doc-tests" cargo test --locked --doc || status=1
  return "$status"
}

# The contract of the Redis store on redis-servers of other kinds.
kinds() {
  local status=0 kind skip
  for kind in "$CACHE"/python-kinds/kinds/*; do
    # These programs were built without TLS.
    skip=(--skip redis_tls)
    # Before 7.0 a node of a cluster cannot choose the port of its bus, and only whole commands have rights.
    [[ $kind != */redis-6.2 ]] || skip+=(--skip cluster --skip redis_fleet)
    PATH=$kind:$PATH timed "${kind##*/}" cargo test --locked --no-fail-fast --test store -- redis "${skip[@]}" || status=1
  done
  return "$status"
}

# The test programs of the part unit, as cargo's arguments.
rust_tests() {
  local file name
  for file in tests/*.rs tests/*/main.rs; do
    case $file in
      tests/interop.rs | tests/failpoints.rs | tests/bars/main.rs | 'tests/*/main.rs') continue ;;
      */main.rs) name=$(basename "$(dirname "$file")") ;;
      *) name=$(basename "$file" .rs) ;;
    esac
    [ -n "$SHORT" ] && [[ " ${SHORT_BUILDS_NO[*]} " == *" $name "* ]] || printf -- '--test %s ' "$name"
  done
  say
}

# The program with the features of its libraries that the Rust tests have built: without a test they would be fewer, and most
# libraries would be built again. This test is among the smallest.
built() { cargo test --locked --no-run --quiet --test config; }

conformance() { built && "$TESTS/conformance/all.sh" ${SHORT:+"${SHORT_CONFORMANCE[@]}"}; }

bars() { "$TESTS/bars/all.sh"; }

platforms() { "$TESTS/platforms/all.sh"; }

field() { built && RAINCHECK=$(raincheck_path) "$TESTS/field/run.py"; }

interop() { built && "$TESTS/interop/all.sh" ${SHORT:+"${SHORT_INTEROP[@]}"}; }

main "$@"
