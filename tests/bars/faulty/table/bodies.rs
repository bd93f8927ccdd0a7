//! What is HTTP with a body that is no answer.

use super::super::script::{Act, Asked, CANARY, json, page, reply};
use super::{COMPLETED, Fault, INVALID, RESET, TOO_DEEP, fault};

#[expect(clippy::too_many_lines, reason = "a table, read line by line")]
pub(super) fn faults() -> Vec<Fault> {
    let mut all = vec![
        fault("empty", INVALID, |_| vec![json(200, &[], "")]),
        fault("no-json", INVALID, |_| vec![json(200, &[], CANARY)]),
        fault("json-in-part", INVALID, |asked| {
            let answer = asked.answer();
            vec![json(200, &[], &answer[..answer.len() - 1])]
        }),
        fault("json-and-more", INVALID, |asked| {
            vec![json(200, &[], &format!("{}{CANARY}", asked.answer()))]
        }),
        fault("byte-order-mark", COMPLETED, |asked| {
            vec![json(200, &[], &format!("\u{feff}{}", asked.answer()))]
        }),
        fault("no-utf-8", INVALID, |asked| {
            let mut bytes = asked.answer().into_bytes();
            if let Some(at) = bytes.iter().position(|byte| *byte == b'd') {
                bytes[at] = 0xff;
            }
            vec![reply(200, "application/json", &[], &bytes)]
        }),
        fault("utf-16", INVALID, |asked| {
            let bytes: Vec<u8> = asked
                .answer()
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect();
            vec![reply(200, "application/json; charset=utf-16", &[], &bytes)]
        }),
        fault("lone-surrogate", COMPLETED, |asked| {
            right_but_for(asked, r#""x":"\ud800""#)
        }),
        fault("control-character", INVALID, |asked| {
            result(asked, "{\"content\":[],\"x\":\"\u{1}\"}")
        }),
        fault("deep", COMPLETED, |asked| {
            let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
            right_but_for(asked, &format!(r#""x":{deep}"#))
        }),
        fault("too-deep", TOO_DEEP, |asked| {
            let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
            result(asked, &format!(r#"{{"content":{deep}}}"#))
        }),
        fault("result-that-is-none", INVALID, |asked| {
            result(asked, "null")
        }),
        fault("result-that-is-a-list", INVALID, |asked| {
            result(asked, "[1]")
        }),
        // A legacy result is always complete, whatever words of 2026 it has.
        fault("result-of-another-kind", COMPLETED, |asked| {
            another_kind(asked, r#""resultType":"magic""#)
        })
        .modern(INVALID),
        fault("questions-that-are-none", COMPLETED, |asked| {
            another_kind(
                asked,
                r#""resultType":"input_required","inputRequests":[1]"#,
            )
        })
        .modern(INVALID),
        fault("result-and-error", INVALID, |asked| {
            let id = &asked.id;
            vec![json(
                200,
                &[],
                &format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{}},"error":{{"code":1,"message":"{CANARY}"}}}}"#
                ),
            )]
        }),
        fault("neither-result-nor-error", INVALID, |asked| {
            vec![json(
                200,
                &[],
                &format!(r#"{{"jsonrpc":"2.0","id":{}}}"#, asked.id),
            )]
        }),
        fault("batch", COMPLETED, |asked| {
            vec![json(200, &[], &format!("[{}]", asked.answer()))]
        }),
        fault("foreign-id", INVALID, |asked| {
            vec![json(
                200,
                &[],
                &asked
                    .answer()
                    .replace(&format!("\"id\":{}", asked.id), "\"id\":99999999"),
            )]
        }),
        fault("id-of-another-type", COMPLETED, |asked| {
            let id = &asked.id;
            vec![json(
                200,
                &[],
                &asked
                    .answer()
                    .replace(&format!("\"id\":{id}"), &format!("\"id\":\"{id}\"")),
            )]
        }),
        fault("notification-instead", INVALID, |asked| {
            vec![json(200, &[], &asked.progress(1))]
        }),
    ];
    all.extend([
        fault("html", INVALID, |_| vec![page(200, &[])]),
        fault("json-called-text", COMPLETED, |asked| {
            vec![reply(200, "text/plain", &[], asked.answer().as_bytes())]
        }),
        fault("of-no-type", COMPLETED, |asked| {
            vec![reply(200, "", &[], asked.answer().as_bytes())]
        }),
        fault("gzip", INVALID, |asked| {
            vec![json(200, &[("content-encoding", "gzip")], &asked.answer())]
        }),
        fault("gzip-for-good", INVALID, |_| {
            let bomb: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
            vec![reply(
                200,
                "application/json",
                &[("content-encoding", "gzip")],
                bomb,
            )]
        }),
        fault("brotli-events", RESET, |_| {
            vec![reply(
                200,
                "text/event-stream",
                &[("content-encoding", "br")],
                b"data: {}\n\n",
            )]
        }),
    ]);
    all
}

/// The right answer, with another member.
fn right_but_for(asked: &Asked, member: &str) -> Vec<Act> {
    let answer = asked.answer();
    let answer = answer.replacen(r#""result":{"#, &format!(r#""result":{{{member},"#), 1);
    vec![json(200, &[], &answer)]
}

/// The right answer, of another type.
fn another_kind(asked: &Asked, members: &str) -> Vec<Act> {
    let answer = asked.answer();
    let answer = answer.replacen(r#""resultType":"complete""#, members, 1);
    vec![json(200, &[], &answer)]
}

fn result(asked: &Asked, result: &str) -> Vec<Act> {
    let id = &asked.id;
    vec![json(
        200,
        &[],
        &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    )]
}
