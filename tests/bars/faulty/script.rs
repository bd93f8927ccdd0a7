//! What a misbehaving server does to one request, byte for byte.

use std::cell::Cell;
use std::fmt::Write as _;
use std::time::Duration;

use super::Book;
pub(crate) use crate::scripted::{Act, chunked};

/// A text in the server's messages that is not meant for the client. No client may ever read it.
pub(crate) const CANARY: &str = "CANARY-5d1e";

/// A request as a script sees it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its JSON-RPC id, as JSON.
    pub(crate) id: String,
    pub(crate) token: String,
    /// How many requests came for this call, this one included.
    pub(crate) nth: u32,
    /// The address to which redirects lead. It must never be requested.
    pub(crate) trap: String,
    pub(crate) book: Book,
    /// The session of this request is unknown from here on.
    pub(crate) loses_session: Cell<bool>,
    /// Whatever comes on this connection from here on should not have come.
    pub(crate) spoils: Cell<bool>,
}

impl Asked {
    /// The right answer.
    pub(crate) fn answer(&self) -> String {
        answer(&self.id, &self.token)
    }

    pub(crate) fn good(&self) -> Vec<Act> {
        vec![json(200, &[], &self.answer())]
    }

    pub(crate) fn without_session(&self, act: Act) -> Vec<Act> {
        self.loses_session.set(true);
        vec![act]
    }

    pub(crate) fn spoiled(&self, acts: Vec<Act>) -> Vec<Act> {
        self.spoils.set(true);
        acts
    }

    /// Until so many of this call's questions were answered.
    pub(crate) fn until_answered(&self, count: usize) -> Act {
        let (book, token) = (self.book.clone(), self.token.clone());
        Act::wait(async move {
            let long = Duration::from_mins(1);
            let answered = book.until(&token, long, |entry| entry.answers.len() >= count);
            let _ = answered.await;
        })
    }

    pub(crate) fn progress(&self, step: u32) -> String {
        let id = &self.id;
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{id},"progress":{step},"message":"step {step}"}}}}"#
        )
    }

    /// An event of the call's stream that can be come back to.
    pub(crate) fn event(&self, place: &str, data: &str) -> String {
        format!("id: {}/{place}\ndata: {data}\n\n", self.token)
    }

    /// A request of the server.
    pub(crate) fn question(&self, method: &str) -> String {
        let token = &self.token;
        format!(r#"{{"jsonrpc":"2.0","id":"{token}/{method}","method":"{method}","params":{{}}}}"#)
    }
}

fn answer(id: &str, token: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"done {token}"}}]}}}}"#
    )
}

pub(crate) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

pub(crate) fn text(text: &str) -> Act {
    Act::send(text.as_bytes().to_vec())
}

/// A whole response of JSON.
pub(crate) fn json(status: u16, headers: &[(&str, &str)], body: &str) -> Act {
    reply(status, "application/json", headers, body.as_bytes())
}

/// A whole response of something else. Its words may be repeated; what stands in its markup may not.
pub(crate) fn page(status: u16, headers: &[(&str, &str)]) -> Act {
    let body = format!("<h1 class=\"{CANARY}\">no</h1><!-- {CANARY} -->");
    reply(status, "text/html", headers, body.as_bytes())
}

/// A whole response.
pub(crate) fn reply(status: u16, kind: &str, headers: &[(&str, &str)], body: &[u8]) -> Act {
    let mut all = head(status, kind, headers);
    let _ = write!(all, "content-length: {}\r\n\r\n", body.len());
    let mut bytes = all.into_bytes();
    bytes.extend_from_slice(body);
    Act::send(bytes)
}

/// A response head without its end.
pub(crate) fn head(status: u16, kind: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("HTTP/1.1 {status} Said\r\nx-said: {CANARY}\r\n");
    if !kind.is_empty() {
        let _ = write!(head, "content-type: {kind}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head
}

/// The head of a stream of events, to be followed by chunks.
pub(crate) fn stream() -> Act {
    let head = head(200, "text/event-stream", &[]);
    text(&format!("{head}transfer-encoding: chunked\r\n\r\n"))
}

/// A whole stream of these events.
pub(crate) fn events(events: &[String]) -> Vec<Act> {
    vec![stream(), Act::chunk(events.concat()), Act::last_chunk()]
}

/// A stream that begins so and is cut in the middle.
pub(crate) fn cut(events: &[String]) -> Vec<Act> {
    vec![stream(), Act::chunk(events.concat()), Act::Close]
}
