//! What a misbehaving server does to one request, byte for byte.

use std::fmt::Write as _;
use std::time::Duration;

/// A text in the server's messages that is not meant for the client. No client may ever read it.
pub(crate) const CANARY: &str = "CANARY-5d1e";

/// One thing that the server does. A script that comes to its end keeps the connection for the next request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// These bytes so many times.
    Times {
        bytes: Vec<u8>,
        times: usize,
    },
    Pause(Duration),
    /// These bytes again and again, until the client hangs up.
    Endless {
        bytes: Vec<u8>,
        every: Duration,
    },
    /// Until the client hangs up.
    Hang,
    /// Until so many of this call's questions were answered.
    UntilAnswered(usize),
    /// The session of this request is unknown from here on.
    LoseSession,
    /// Whatever comes on this connection from here on should not have come.
    Spoil,
    /// FIN.
    Close,
    /// RST.
    Reset,
}

/// A request as a script sees it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Its JSON-RPC id, as JSON.
    pub(crate) id: String,
    pub(crate) token: String,
    /// How many requests came for this call, this one included.
    pub(crate) nth: u32,
    /// The address to which redirects lead. It must never be requested.
    pub(crate) trap: String,
}

impl Asked {
    /// The right answer.
    pub(crate) fn answer(&self) -> String {
        answer(&self.id, &self.token)
    }

    pub(crate) fn good(&self) -> Vec<Act> {
        vec![json(200, &[], &self.answer())]
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
    Act::Send(text.as_bytes().to_vec())
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
    Act::Send(bytes)
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

pub(crate) fn chunk(bytes: &str) -> Act {
    Act::Send(chunked(bytes.as_bytes()))
}

pub(crate) fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut all = format!("{:x}\r\n", bytes.len()).into_bytes();
    all.extend_from_slice(bytes);
    all.extend_from_slice(b"\r\n");
    all
}

pub(crate) fn last_chunk() -> Act {
    text("0\r\n\r\n")
}

/// A whole stream of these events.
pub(crate) fn events(events: &[String]) -> Vec<Act> {
    vec![stream(), chunk(&events.concat()), last_chunk()]
}

/// A stream that begins so and is cut in the middle.
pub(crate) fn cut(events: &[String]) -> Vec<Act> {
    vec![stream(), chunk(&events.concat()), Act::Close]
}
