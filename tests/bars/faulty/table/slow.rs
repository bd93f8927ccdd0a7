//! What takes too long: the deadline ends it, and the server is told.

use std::time::Duration;

use super::super::script::{Act, CANARY, chunked, event, head, stream, text};
use super::{DEADLINE, Fault, fault};

const SECOND: Duration = Duration::from_secs(1);
const OFTEN: Duration = Duration::from_millis(5);

pub(super) fn faults() -> Vec<Fault> {
    let all = vec![
        fault("hang", DEADLINE, |_| vec![Act::hang()]),
        fault("hang-in-the-head", DEADLINE, |_| {
            vec![text("HTTP/1.1 200 OK\r\n"), Act::hang()]
        }),
        fault("hang-in-json", DEADLINE, |asked| {
            let answer = asked.answer();
            let head = head(200, "application/json", &[("content-length", "999")]);
            vec![text(&format!("{head}\r\n{answer}")), Act::hang()]
        }),
        fault("hang-in-events", DEADLINE, |_| vec![stream(), Act::hang()]),
        fault("hang-in-an-event", DEADLINE, |asked| {
            vec![
                stream(),
                Act::chunk(format!("data: {}", asked.answer())),
                Act::hang(),
            ]
        }),
        fault("hang-in-a-refusal", DEADLINE, |_| {
            let head = head(500, "text/html", &[("content-length", "999")]);
            vec![text(&format!("{head}\r\n{CANARY}")), Act::hang()]
        }),
        fault("drip-of-json", DEADLINE, |_| {
            let head = head(200, "application/json", &[("content-length", "999")]);
            vec![text(&format!("{head}\r\n")), drip(b" ")]
        }),
        fault("drip-of-a-head", DEADLINE, |_| {
            vec![text("HTTP/1.1 200 OK\r\nx-said: "), drip(b"x")]
        }),
        fault("drip-of-events", DEADLINE, |_| {
            vec![stream(), drip(&chunked(b": x\n"))]
        }),
        fault("endless-progress", DEADLINE, |asked| {
            let mut events = String::new();
            for step in 0..20 {
                events.push_str(&event(&asked.progress(step)));
            }
            vec![stream(), Act::endless(chunked(events.as_bytes()), OFTEN)]
        }),
        fault("endless-comments", DEADLINE, |_| {
            let bytes = chunked(format!(": {CANARY}\n").repeat(100).as_bytes());
            vec![stream(), Act::endless(bytes, OFTEN)]
        }),
        fault("endless-junk", DEADLINE, |_| {
            let bytes = chunked(event(CANARY).repeat(100).as_bytes());
            vec![stream(), Act::endless(bytes, OFTEN)]
        }),
        fault("answer-too-late", DEADLINE, |asked| {
            let mut acts = vec![stream(), Act::pause(5 * SECOND)];
            acts.push(Act::chunk(event(&asked.answer())));
            acts
        }),
    ];
    all.into_iter().map(|fault| fault.by("brief")).collect()
}

fn drip(bytes: &[u8]) -> Act {
    Act::endless(bytes.to_vec(), SECOND)
}
