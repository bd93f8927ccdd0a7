//! Streams of events that say something wrong, or end too early.

use super::super::script::{Act, Asked, CANARY, cut, event, events, page, stream};
use super::{COMPLETED, Fault, INVALID, RESET, TOO_DEEP, fault};

pub(super) fn faults() -> Vec<Fault> {
    let mut all = wrong();
    all.extend(requests());
    all.extend(cuts());
    all
}

fn wrong() -> Vec<Fault> {
    vec![
        fault("two-answers", COMPLETED, |asked| {
            let second = asked.answer().replace("done", CANARY);
            events(&[event(&asked.answer()), event(&second)])
        }),
        fault("foreign-answer-first", COMPLETED, |asked| {
            events(&[event(&foreign(asked)), event(&asked.answer())])
        }),
        fault("foreign-answer-only", INVALID, |asked| {
            events(&[event(&foreign(asked))])
        }),
        fault("junk-first", COMPLETED, |asked| {
            let junk = format!(
                "data: {CANARY}\n\ndata: {{\"id\":\n\nid\n\n: {CANARY}\n\nevent: x\n\nwhat is this\n\n"
            );
            events(&[junk, event("[1]"), event("{}"), event(&asked.answer())])
        }),
        fault("junk-only", INVALID, |_| events(&[event(CANARY)])),
        fault("no-utf-8-in-an-event", INVALID, |asked| {
            vec![
                stream(),
                Act::chunk(b"data: \xff\n"),
                Act::chunk(event(&asked.answer())),
            ]
        }),
        fault("event-too-deep", TOO_DEEP, |asked| {
            let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
            let id = &asked.id;
            events(&[event(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":{deep}}}}}"#
            ))])
        }),
        fault("stream-of-nothing", RESET, |_| events(&[String::new()])),
        fault("progress-only", RESET, |asked| {
            events(&[event(&asked.progress(1))])
        }),
        fault("event-without-its-end", COMPLETED, |asked| {
            events(&[format!("data: {}", asked.answer())])
        }),
        fault("progress-of-another", COMPLETED, |asked| {
            let progress = asked.progress(1).replace(
                &format!("\"progressToken\":{}", asked.id),
                "\"progressToken\":99999999",
            );
            let mut acts = vec![
                stream(),
                Act::chunk(event(&progress.replace("step 1", CANARY))),
            ];
            acts.extend([
                Act::pause(std::time::Duration::from_millis(300)),
                Act::chunk(event(&asked.answer())),
            ]);
            acts.push(Act::last_chunk());
            acts
        }),
        fault("an-answer-in-single-bytes", COMPLETED, |asked| {
            let mut acts = vec![stream()];
            acts.extend(
                event(&asked.answer())
                    .chars()
                    .map(|c| Act::chunk(c.to_string())),
            );
            acts.push(Act::last_chunk());
            acts
        }),
    ]
}

fn foreign(asked: &Asked) -> String {
    let own = format!("\"id\":{}", asked.id);
    asked
        .answer()
        .replace(&own, "\"id\":99999999")
        .replace("done", CANARY)
}

/// Requests of the server in the middle of a call.
fn requests() -> Vec<Fault> {
    vec![
        fault("ping", COMPLETED.answered(&["ping {}"]), |asked| {
            asks(asked, &["ping"])
        })
        .only_legacy(),
        fault(
            "request-of-nobody",
            COMPLETED.answered(&["no/such -32601"]),
            |asked| asks(asked, &["no/such"]),
        )
        .only_legacy(),
        fault(
            "request-not-declared",
            COMPLETED.answered(&["sampling/createMessage -32601", "roots/list -32601"]),
            |asked| asks(asked, &["sampling/createMessage", "roots/list"]),
        )
        .only_legacy(),
        fault("requests-in-the-wrong-era", COMPLETED, |asked| {
            events(&[
                event(&asked.question("ping")),
                event(&asked.question("no/such")),
                event(&asked.answer()),
            ])
        })
        .only_modern(),
    ]
}

fn asks(asked: &Asked, methods: &[&str]) -> Vec<Act> {
    let mut acts = vec![stream()];
    for (place, method) in methods.iter().enumerate() {
        acts.push(Act::chunk(event(&asked.question(method))));
        acts.push(asked.until_answered(place + 1));
    }
    acts.push(Act::chunk(event(&asked.answer())));
    acts.push(Act::last_chunk());
    acts
}

/// Streams that are cut: those with event ids are come back to, on a legacy server.
fn cuts() -> Vec<Fault> {
    vec![
        fault("cut", RESET, |asked| cut(&[event(&asked.progress(1))])),
        fault("cut-repeatable", RESET.sent(3), |asked| {
            cut(&[event(&asked.progress(1))])
        })
        .by("read"),
        fault("cut-after-an-id", COMPLETED.fetched(1), numbered)
            .resumed(|asked, last| after(asked, last, "1"))
            .modern(RESET),
        fault("closed-after-an-id", COMPLETED.fetched(1), |asked| {
            events(&[format!("retry: 50\n{}", asked.event("1", ""))])
        })
        .resumed(|asked, last| after(asked, last, "1"))
        .modern(RESET),
        fault("cut-again-and-again", COMPLETED.fetched(3), numbered)
            .resumed(|asked, last| match asked.nth {
                1 => cut(&[asked.event("2", &asked.progress(2))]),
                2 => cut(&[]),
                _ => after(asked, last, "2"),
            })
            .only_legacy(),
        fault("resume-not-allowed", RESET.fetched(1), numbered).only_legacy(),
        fault("resume-not-found", RESET.fetched(1), numbered)
            .resumed(|_, _| vec![page(404, &[])])
            .only_legacy(),
        fault("resume-unauthorized", RESET.fetched(1), numbered)
            .resumed(|_, _| vec![page(401, &[])])
            .only_legacy(),
        fault("resume-broken-then-mended", COMPLETED.fetched(4), numbered)
            .resumed(|asked, last| match asked.nth {
                1 => vec![page(502, &[])],
                2 => vec![Act::Reset],
                3 => vec![page(503, &[("retry-after", "0")])],
                _ => after(asked, last, "1"),
            })
            .only_legacy(),
        fault("ids-twice", COMPLETED.fetched(1), |asked| {
            cut(&[
                asked.event("7", &asked.progress(1)),
                asked.event("7", &asked.progress(2)),
            ])
        })
        .resumed(|asked, last| after(asked, last, "7"))
        .only_legacy(),
        fault("ids-unsorted", COMPLETED.fetched(1), |asked| {
            let ids = ["9", "b", "3"].map(|id| asked.event(id, &asked.progress(1)));
            cut(&ids)
        })
        .resumed(|asked, last| after(asked, last, "3"))
        .only_legacy(),
        fault("events-told-again", COMPLETED.fetched(1), |asked| {
            cut(&[
                asked.event("1", &asked.progress(1)),
                asked.event("2", &asked.progress(2)),
            ])
        })
        .resumed(|asked, _| {
            let again = [
                asked.event("1", &asked.progress(1)),
                asked.event("2", &asked.progress(2)),
            ];
            events(&[again.concat(), asked.event("3", &asked.answer())])
        })
        .only_legacy(),
    ]
}

fn numbered(asked: &Asked) -> Vec<Act> {
    cut(&[asked.event("1", &asked.progress(1))])
}

/// The rest of the stream, for who asks for what follows that very event.
fn after(asked: &Asked, last: &str, place: &str) -> Vec<Act> {
    if last != format!("{}/{place}", asked.token) {
        return vec![page(400, &[])];
    }
    events(&[asked.event("z", &asked.answer())])
}
