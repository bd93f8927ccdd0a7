//! What is no HTTP, or stops being it.

use std::time::Duration;

use super::super::script::{Act, CANARY, chunked, cut, event, head, json, stream, text};
use super::{
    COMPLETED, DEADLINE, Fault, INVALID, RESET, RESULT_BYTES_MAX, TOO_LARGE, failed, fault,
};

#[expect(clippy::too_many_lines, reason = "a table, read line by line")]
pub(super) fn faults() -> Vec<Fault> {
    vec![
        fault("reset", RESET, |_| vec![Act::Reset]),
        fault("reset-twice-repeatable", COMPLETED.sent(3), |asked| {
            if asked.nth > 2 {
                return asked.good();
            }
            vec![Act::Reset]
        })
        .by("read"),
        fault("reset-repeatable", RESET.sent(3), |_| vec![Act::Reset]).by("read"),
        fault("hung-up-on", RESET, |_| vec![Act::Close]),
        fault("head-in-part", RESET, |_| {
            vec![text("HTTP/1.1 200 OK\r\ncontent-ty"), Act::Close]
        }),
        fault("head-then-reset", RESET, |_| {
            vec![text("HTTP/1.1 200"), Act::Reset]
        }),
        fault("no-http", INVALID, |_| {
            vec![text(CANARY), text("\r\n\r\n"), Act::Close]
        }),
        fault("another-protocol", INVALID, |_| {
            vec![text("SSH-2.0-CANARY-5d1e\r\n"), Act::hang()]
        }),
        fault("status-that-is-none", INVALID, |_| {
            vec![text("HTTP/1.1 2000 OK\r\ncontent-length: 0\r\n\r\n")]
        }),
        fault("header-that-is-none", INVALID, |asked| {
            let answer = asked.answer();
            let length = answer.len();
            vec![text(&format!(
                "HTTP/1.1 200 OK\r\nx y: {CANARY}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}"
            ))]
        }),
        fault("truncated", RESET, |asked| {
            let head = head(200, "application/json", &[("content-length", "9999")]);
            vec![text(&format!("{head}\r\n{}", asked.answer())), Act::Close]
        }),
        fault("truncated-by-reset", RESET, |asked| {
            let head = head(200, "application/json", &[("content-length", "9999")]);
            vec![text(&format!("{head}\r\n{}", asked.answer())), Act::Reset]
        }),
        fault("chunks-truncated", RESET, |asked| {
            vec![chunked_json(), Act::chunk(asked.answer()), Act::Close]
        }),
        fault("chunk-of-no-size", INVALID, |asked| {
            vec![
                chunked_json(),
                text(&format!("zz\r\n{}\r\n", asked.answer())),
                Act::hang(),
            ]
        }),
        fault("chunk-of-too-much-size", INVALID, |asked| {
            vec![
                chunked_json(),
                text(&format!("{}\r\n{}", "f".repeat(40), asked.answer())),
                Act::hang(),
            ]
        }),
        fault("chunk-of-no-size-in-events", RESET, |asked| {
            vec![
                stream(),
                Act::chunk(event(&asked.progress(1))),
                text("zz\r\n"),
                Act::hang(),
            ]
        }),
        fault("length-and-chunks", INVALID, |asked| {
            let answer = asked.answer();
            let headers = [("content-length", "4"), ("transfer-encoding", "chunked")];
            let head = head(200, "application/json", &headers);
            asked.spoiled(vec![
                text(&format!("{head}\r\n")),
                Act::chunk(answer),
                Act::last_chunk(),
            ])
        }),
        fault("two-lengths", INVALID, |asked| {
            let answer = asked.answer();
            let length = answer.len().to_string();
            let headers = [("content-length", "4"), ("content-length", length.as_str())];
            let head = head(200, "application/json", &headers);
            asked.spoiled(vec![text(&format!("{head}\r\n{answer}"))])
        }),
        // The answer itself is complete, and the bytes after it belong to no request.
        fault("bytes-after-the-body", COMPLETED, |asked| {
            let stray =
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"x":"{CANARY}"}}}}"#);
            let (Act::Send(answer), Act::Send(more)) =
                (json(200, &[], &asked.answer()), json(200, &[], &stray))
            else {
                return Vec::new();
            };
            asked.spoiled(vec![Act::send([answer, more].concat())])
        }),
        fault("bytes-after-the-last-chunk", COMPLETED, |asked| {
            let stray = format!("0\r\n\r\nHTTP/1.1 200 {CANARY}\r\n");
            let answer = chunked(event(&asked.answer()));
            let bytes = [&*answer, stray.as_bytes()].concat();
            asked.spoiled(vec![stream(), Act::send(bytes)])
        }),
        fault("head-too-large", TOO_LARGE, |_| {
            let long = "y".repeat(80_000);
            vec![
                text(&format!("HTTP/1.1 200 OK\r\nx-said: {CANARY}{long}")),
                Act::hang(),
            ]
        }),
        fault("head-without-end", TOO_LARGE, |_| {
            let line = format!("x-said: {CANARY}\r\n").repeat(50);
            vec![
                text("HTTP/1.1 200 OK\r\n"),
                Act::endless(line, Duration::ZERO),
            ]
        }),
        fault("too-many-headers", TOO_LARGE, |asked| {
            let many = "x-said: y\r\n".repeat(200);
            let head = head(200, "application/json", &[]);
            let answer = asked.answer();
            let length = answer.len();
            vec![
                text(&format!(
                    "{head}{many}content-length: {length}\r\n\r\n{answer}"
                )),
                Act::hang(),
            ]
        }),
        fault("result-too-large", TOO_LARGE, |_| {
            vec![json(200, &[], &"x".repeat(RESULT_BYTES_MAX + (128 << 10)))]
        }),
        fault("result-just-too-large", TOO_LARGE, |asked| {
            let answer = asked
                .answer()
                .replace("done", &"x".repeat(RESULT_BYTES_MAX));
            vec![json(200, &[], &answer)]
        }),
        fault("result-without-end", TOO_LARGE, |_| {
            vec![
                chunked_json(),
                Act::endless(chunked("x".repeat(64 << 10).as_bytes()), Duration::ZERO),
            ]
        }),
        fault("event-too-large", TOO_LARGE, |_| {
            vec![
                stream(),
                Act::chunk("data: "),
                Act::endless(chunked("x".repeat(64 << 10).as_bytes()), Duration::ZERO),
            ]
        }),
        fault("event-of-too-many-lines", TOO_LARGE, |_| {
            vec![
                stream(),
                Act::endless(
                    chunked("data: x\n".repeat(8 << 10).as_bytes()),
                    Duration::ZERO,
                ),
            ]
        }),
        fault("closed-after-the-answer", COMPLETED, |asked| {
            let mut acts = asked.good();
            acts.push(Act::Close);
            acts
        })
        .apart(),
        fault("answer-then-cut", COMPLETED, |asked| {
            cut(&[event(&asked.answer())])
        }),
        // Provisional responses are no answer.
        fault("continue-first", COMPLETED, |asked| {
            let mut acts = vec![text("HTTP/1.1 100 Continue\r\n\r\n")];
            acts.extend(asked.good());
            acts
        }),
        // Nothing rules out that the call ran.
        fault(
            "other-protocol-offered",
            failed("upstream_http", "unknown"),
            |_| {
                vec![
                    text(
                        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
                    ),
                    Act::hang(),
                ]
            },
        ),
        fault("continue-without-end", DEADLINE, |_| {
            vec![Act::endless(
                "HTTP/1.1 100 Continue\r\n\r\n",
                Duration::from_millis(10),
            )]
        })
        .by("brief"),
    ]
}

fn chunked_json() -> Act {
    let head = head(200, "application/json", &[("transfer-encoding", "chunked")]);
    text(&format!("{head}\r\n"))
}
