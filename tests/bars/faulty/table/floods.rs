//! More than anybody can want to hear. Each is a bar's own, on a stage of its own.

use super::super::script::{Act, chunked, event, events, head, json, stream, text};
use super::{COMPLETED, Fault, TOO_LARGE, fault};

const MEBIBYTE: usize = 1 << 20;

/// What a flood comes to, and a line.
const FLOOD: usize = 200;
const LINE: usize = 300;

pub(super) fn faults() -> Vec<Fault> {
    let all = vec![
        fault("flood-of-progress", COMPLETED, |asked| {
            let words = format!("step {}", "x".repeat(1000));
            let progress = asked.progress(1).replace("step 1", &words);
            flooded(&event(&progress), &event(&asked.answer()))
        }),
        fault("flood-of-junk", COMPLETED, |asked| {
            let junk = event(&"x".repeat(64 << 10));
            flooded(&junk, &event(&asked.answer()))
        }),
        fault("flood-of-json", TOO_LARGE, |_| {
            let head = head(200, "application/json", &[("transfer-encoding", "chunked")]);
            let mut acts = vec![text(&format!("{head}\r\n"))];
            acts.push(Act::times(chunked(vec![b' '; MEBIBYTE]), FLOOD));
            acts
        }),
        fault("line-of-300-mib", TOO_LARGE, |_| {
            let line = Act::times(chunked(vec![b'x'; MEBIBYTE]), LINE);
            vec![stream(), Act::chunk("data: "), line, Act::last_chunk()]
        }),
        // How it ends depends on what is allowed.
        fault("result-of-64-mib", TOO_LARGE, |asked| {
            vec![json(200, &[], &large(&asked.answer(), &asked.token, 64))]
        }),
        fault("result-of-31-mib", COMPLETED, |asked| {
            vec![json(200, &[], &large(&asked.answer(), &asked.token, 31))]
        }),
        fault("event-of-64-mib", TOO_LARGE, |asked| {
            events(&[event(&large(&asked.answer(), &asked.token, 64))])
        }),
    ];
    all.into_iter().map(Fault::apart).collect()
}

/// The answer with one more field, that makes it so many mebibytes large.
fn large(answer: &str, token: &str, mebibytes: usize) -> String {
    let end = format!("done {token}\"}}]");
    let more = format!(
        "{end},\"more\":\"{}\"",
        "x".repeat(mebibytes * MEBIBYTE - 1024)
    );
    answer.replace(&end, &more)
}

fn flooded(one: &str, answer: &str) -> Vec<Act> {
    let bytes = chunked(one.repeat(MEBIBYTE / one.len() + 1).as_bytes());
    let flood = Act::times(bytes, FLOOD);
    vec![stream(), flood, Act::chunk(answer), Act::last_chunk()]
}
