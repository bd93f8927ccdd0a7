//! How servers answer notifications.

use super::{Done, HTTP, PROGRAM, Row, check};
use crate::field_servers::server::{ACCEPTED, PLAIN, Writing};

#[tokio::test]
async fn a_notification_may_be_answered_in_any_way() {
    check(notifications()).await;
}

fn notifications() -> Vec<Row> {
    let notified = |to_notification| Writing {
        to_notification,
        ..PLAIN
    };
    vec![
        (
            "202 with a body",
            HTTP,
            notified(
                "HTTP/1.1 202 Accepted\r\ncontent-type: text/plain\r\ncontent-length: 8\r\n\r\nAccepted",
            ),
            Done,
        ),
        (
            "200 with an object",
            HTTP,
            notified(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            ),
            Done,
        ),
        (
            "200 with nothing",
            HTTP,
            notified("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
            Done,
        ),
        (
            "204",
            HTTP,
            notified("HTTP/1.1 204 No Content\r\n\r\n"),
            Done,
        ),
        (
            "an early head before it",
            HTTP,
            notified(
                "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
            ),
            Done,
        ),
        (
            "an error",
            HTTP,
            notified(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 60\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":1,\"message\":\"m\"}}",
            ),
            Done,
        ),
        (
            "an error that is no JSON",
            HTTP,
            notified("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops"),
            Done,
        ),
        (
            "a line with an error",
            PROGRAM,
            Writing {
                line_for_notification: "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32601,\"message\":\"m\"}}\n",
                ..PLAIN
            },
            Done,
        ),
        ("as it should be", HTTP, notified(ACCEPTED), Done),
    ]
}
