//! How servers frame, label and code their bodies.

use super::codings::{brotli, gzip, gzip_begun, stored, zlib};
use super::{Done, HTTP, Refused, Row, STREAMS, all, check, json, text};
use crate::field_servers::server::{PLAIN, Way, Writing, message};

fn coded(head: &'static str, body: fn(Vec<u8>) -> Vec<u8>) -> Writing {
    Writing {
        head,
        body,
        ..PLAIN
    }
}

fn kind(kind: &'static str) -> Writing {
    Writing {
        kind: Some(kind),
        ..PLAIN
    }
}

fn same(body: Vec<u8>) -> Vec<u8> {
    body
}

#[tokio::test]
async fn bodies_are_read_as_servers_send_them() {
    check(bodies()).await;
}

#[expect(clippy::too_many_lines, reason = "it is one table")]
fn bodies() -> Vec<Row> {
    vec![
        ("JSON", HTTP, json(PLAIN), Done),
        (
            "JSON with a byte order mark",
            HTTP,
            json(all(|id, result| {
                [b"\xef\xbb\xbf", &*message(id, result)].concat()
            })),
            Done,
        ),
        (
            "JSON over several lines",
            HTTP,
            json(all(|id, result| {
                text(format!(
                    "\r\n{{\"id\":{id},\r\n\t\"result\":{result}}}\r\n\r\n"
                ))
            })),
            Done,
        ),
        (
            "identity",
            STREAMS,
            coded("content-encoding: identity\r\n", same),
            Done,
        ),
        (
            "IDENTITY",
            STREAMS,
            coded("Content-Encoding: IDENTITY\r\n", same),
            Done,
        ),
        (
            "an empty coding",
            STREAMS,
            coded("content-encoding:\r\n", same),
            Done,
        ),
        (
            "a list of identities",
            STREAMS,
            coded("content-encoding: identity, identity\r\n", same),
            Done,
        ),
        (
            "identity, JSON",
            HTTP,
            json(coded("content-encoding: identity\r\n", same)),
            Done,
        ),
        (
            "gzip",
            &[Way::Legacy],
            coded("content-encoding: gzip\r\n", gzip),
            Done,
        ),
        (
            "gzip, JSON",
            &[Way::Legacy],
            json(coded("content-encoding: x-gzip\r\n", gzip)),
            Done,
        ),
        (
            "gzip that stays open",
            &[Way::Legacy],
            Writing {
                stays_open: true,
                ..coded("content-encoding: gzip\r\n", gzip_begun)
            },
            Done,
        ),
        (
            "deflate",
            &[Way::Legacy],
            coded("content-encoding: deflate\r\n", zlib),
            Done,
        ),
        (
            "deflate without its wrapper",
            &[Way::Legacy],
            coded("content-encoding: deflate\r\n", stored),
            Done,
        ),
        (
            "br",
            &[Way::Legacy],
            coded("content-encoding: br\r\n", brotli),
            Done,
        ),
        (
            "br over gzip",
            &[Way::Legacy],
            coded("content-encoding: gzip, br\r\n", |body| brotli(gzip(body))),
            Done,
        ),
        (
            "a coding that nobody knows",
            &[Way::Legacy],
            Writing {
                calls_only: true,
                ..coded("content-encoding: zstd\r\n", same)
            },
            Refused("the content coding zstd cannot be undone"),
        ),
        (
            "a charset",
            HTTP,
            json(kind("content-type: application/json; charset=utf-8\r\n")),
            Done,
        ),
        (
            "capitals",
            HTTP,
            json(kind("Content-Type: Application/JSON\r\n")),
            Done,
        ),
        (
            "events with a charset",
            STREAMS,
            kind("content-type: text/event-stream; charset=UTF-8\r\n"),
            Done,
        ),
        (
            "events in capitals",
            STREAMS,
            kind("content-type: Text/Event-Stream\r\n"),
            Done,
        ),
        (
            "JSON as text",
            HTTP,
            json(kind("content-type: text/plain\r\n")),
            Done,
        ),
        (
            "JSON of a kind",
            HTTP,
            json(kind("content-type: application/problem+json\r\n")),
            Done,
        ),
        ("JSON without a type", HTTP, json(kind("")), Done),
        ("events without a type", HTTP, kind(""), Done),
        (
            "a page",
            HTTP,
            Writing {
                message: |_, _| text("<html>done</html>"),
                calls_only: true,
                ..json(kind("content-type: text/html; charset=utf-8\r\n"))
            },
            Refused("HTTP 200 OK (text/html): done"),
        ),
    ]
}
