#!/usr/bin/env bash
# tests/fuzz/run.sh [SECONDS] [SEED]: gives each target so many seconds (20), and prints how often it ran. FUZZ_PROFILE=release
# builds for speed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export FUZZ_SECONDS=${1:-20} FUZZ_SEED=${2:-$RANDOM}
profile=${FUZZ_PROFILE:-dev}
cargo test --profile "$profile" --locked --test fuzz -- --nocapture
cargo test --profile "$profile" --locked --lib fuzzed -- --nocapture
