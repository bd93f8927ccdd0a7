//! Fuzzes what reads bytes of others: a seeded mutator over a small corpus, for a moment with every test run.
//!
//! What is private is fuzzed beside its code, by tests whose names begin with `fuzzed`. `tests/fuzz/run.sh SECONDS` gives each
//! target so many seconds under a fuzzer that follows the coverage.
#![expect(clippy::print_stdout, reason = "the input on which a target failed")]

#[path = "fuzz/mutator.rs"]
mod mutator;
#[path = "fuzz/reference.rs"]
mod reference;
#[path = "fuzz/targets.rs"]
mod targets;

use mutator::fuzz;

#[test]
fn envelope() {
    fuzz("envelope", targets::envelope);
}

#[test]
fn header_codec() {
    fuzz("header_codec", targets::header_codec);
}

#[test]
fn sse() {
    fuzz("sse", targets::sse);
}

#[test]
fn stored_record() {
    fuzz("stored_record", targets::stored_record);
}

#[test]
fn sealed() {
    fuzz("sealed", targets::sealed);
}

#[test]
fn configuration() {
    fuzz("configuration", targets::configuration);
}
