//! Every fuzz target in one program: `FUZZ_TARGET` names the one that runs.
#![no_main]

use std::sync::LazyLock;

#[path = "../tests/fuzz/reference.rs"]
mod reference;
#[path = "../tests/fuzz/targets.rs"]
mod targets;

const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("configuration", targets::configuration),
    ("envelope", targets::envelope),
    ("header_codec", targets::header_codec),
    ("lines", raincheck::upstream::stdio::fuzzed_lines),
    ("request", raincheck::downstream::inbound::fuzzed_request),
    ("sealed", targets::sealed),
    ("sse", targets::sse),
    ("stored_record", targets::stored_record),
    ("wrap", raincheck::cli::fuzzed_wrap),
];

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET is {wanted:?}, which is none")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
