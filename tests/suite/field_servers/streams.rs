//! How servers write events, and programs their lines.

use serde_json::Value;

use super::{Done, HTTP, PROGRAM, Refused, Row, STREAMS, call, check, text};
use crate::field_servers::server::{PLAIN, Writing, message};

fn line(line: fn(Vec<u8>) -> Vec<u8>) -> Writing {
    Writing { line, ..PLAIN }
}

fn line_of_call(line: fn(Vec<u8>) -> Vec<u8>) -> Writing {
    Writing {
        calls_only: true,
        ..self::line(line)
    }
}

fn event(event: fn(Vec<u8>) -> Vec<u8>) -> Writing {
    Writing { event, ..PLAIN }
}

#[tokio::test]
async fn events_and_lines_are_read_as_servers_write_them() {
    check(streams()).await;
}

#[expect(clippy::too_many_lines, reason = "it is one table")]
fn streams() -> Vec<Row> {
    vec![
        (
            "no space behind data",
            STREAMS,
            event(|it| [b"data:", &*it, b"\n\n"].concat()),
            Done,
        ),
        (
            "CRLF",
            STREAMS,
            event(|it| [b"event: message\r\ndata: ", &*it, b"\r\n\r\n"].concat()),
            Done,
        ),
        (
            "CR",
            STREAMS,
            event(|it| [b"data: ", &*it, b"\r\r"].concat()),
            Done,
        ),
        (
            "a byte order mark",
            HTTP,
            event(|it| [b"\xef\xbb\xbfdata: ", &*it, b"\n\n"].concat()),
            Done,
        ),
        (
            "a comment and a retry",
            STREAMS,
            event(|it| [b": hi\n\nretry: 10\n\ndata: ", &*it, b"\n\n"].concat()),
            Done,
        ),
        (
            "no empty line at the end",
            HTTP,
            event(|it| [b"event: message\ndata: ", &*it, b"\n"].concat()),
            Done,
        ),
        (
            "no line end at the end",
            HTTP,
            event(|it| [b"event: message\ndata: ", &*it].concat()),
            Done,
        ),
        (
            "a stream that stays open",
            HTTP,
            Writing {
                stays_open: true,
                ..PLAIN
            },
            Done,
        ),
        (
            "a stream that stays open behind what is no JSON",
            HTTP,
            Writing {
                stays_open: true,
                ..call(|id, _| message(id, "{,}"))
            },
            Refused("it is not JSON from ',' at byte"),
        ),
        (
            "a byte order mark on each line",
            PROGRAM,
            line(|it| [b"\xef\xbb\xbf", &*it, b"\n"].concat()),
            Done,
        ),
        (
            "lines with CRLF",
            PROGRAM,
            line(|it| [&*it, b"\r\n"].concat()),
            Done,
        ),
        (
            "empty lines",
            PROGRAM,
            line(|it| [b"\n\r\n  \n", &*it, b" \t\n\n"].concat()),
            Done,
        ),
        (
            "a log between",
            PROGRAM,
            line(|it| [b"INFO loaded 3 plugins\n", &*it, b"\n"].concat()),
            Done,
        ),
        (
            "a log of JSON between",
            PROGRAM,
            line(|it| {
                let log = b"{\"level\":\"info\",\"error\":\"none\",\"result\":1}\n[1,2]\n\"x\"\n{ pid: 7,\n";
                [log, &*it, b"\n"].concat()
            }),
            Done,
        ),
        (
            "a request that is logged",
            PROGRAM,
            line(|it| [b"got {\"id\":2,\"method\":\"tools/call\"}\n", &*it, b"\n"].concat()),
            Done,
        ),
        (
            "over several lines",
            PROGRAM,
            line(|it| {
                let value: Value = serde_json::from_slice(&it).unwrap();
                text(format!("{value:#}\n"))
            }),
            Done,
        ),
        (
            "behind other text",
            PROGRAM,
            line_of_call(|it| [b"INFO done: ", &*it, b"\n"].concat()),
            Refused("other text stands before it on its line, up to byte 11"),
        ),
        (
            "behind the codes of a terminal",
            PROGRAM,
            line_of_call(|it| [b"\r\x1b[K", &*it, b"\n"].concat()),
            Refused("other text stands before it on its line, up to byte 4"),
        ),
        (
            "two messages on one line",
            PROGRAM,
            line_of_call(|it| [br#"{"jsonrpc":"2.0","method":"n"}"#, &*it, b"\n"].concat()),
            Refused("it is not JSON from '{' at byte 30 on"),
        ),
        (
            "Latin-1",
            PROGRAM,
            call(|id, _| {
                [
                    &*text(format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":"caf"#
                    )),
                    b"\xe9\"}}",
                ]
                .concat()
            }),
            Refused("it is not UTF-8 at byte"),
        ),
    ]
}
