//! Bodies and responses of the scripted server.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// One message of a call on its response.
#[derive(Debug)]
pub(crate) enum Said {
    /// A notification or a request of the server; more follows.
    Note(String),
    /// The JSON-RPC response; nothing follows.
    Answer(String),
}

impl Said {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Note(text) | Self::Answer(text) => text,
        }
    }
}

pub(crate) fn json(status: u16, text: String) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(text)).boxed_unsync())
        .unwrap()
}

/// What servers say of web pages, some of them twice.
pub(crate) fn allow_pages(headers: &mut HeaderMap) {
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-origin", "https://other.example"),
        ("access-control-allow-credentials", "true"),
        (
            "access-control-expose-headers",
            "Mcp-Session-Id, X-Request-Id",
        ),
        ("vary", "Accept-Encoding"),
    ] {
        headers.append(name, HeaderValue::from_static(value));
    }
}

pub(crate) fn empty(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// A response that streams `first` and then `rest`, as events.
pub(crate) fn events(first: Option<Said>, rest: mpsc::Receiver<Said>) -> Response<Body> {
    let rest = stream::unfold(rest, |mut rest| async {
        let said = rest.recv().await?;
        Some((said, rest))
    });
    let events = stream::iter(first)
        .chain(rest)
        .map(|said| Ok(Frame::data(event(&said.text()))));
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(events.boxed()).boxed_unsync())
        .unwrap()
}

/// A response that streams event texts, for a test that writes other fields than `data`, too.
pub(crate) fn raw_events(rest: mpsc::Receiver<String>) -> Response<Body> {
    let events = stream::unfold(rest, |mut rest| async {
        let text = rest.recv().await?;
        Some((Ok(Frame::data(Bytes::from(text))), rest))
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(events.boxed()).boxed_unsync())
        .unwrap()
}

fn event(text: &str) -> Bytes {
    Bytes::from(format!("event: message\ndata: {text}\n\n"))
}

/// The tool that a request calls.
pub(crate) fn called(body: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(body).ok()?;
    let is_call = message["method"] == "tools/call";
    let tool = message["params"]["name"].as_str().filter(|_| is_call)?;
    Some(tool.to_owned())
}

/// Whether the request accepts both JSON and SSE, which real servers demand.
pub(crate) fn accepts_both(parts: &Parts) -> bool {
    let accept = parts
        .headers
        .get("accept")
        .map_or("", |value| value.to_str().unwrap());
    accept.contains("application/json") && accept.contains("text/event-stream")
}

/// An error of a server's own.
pub(crate) fn forbidden(request: &[u8]) -> Response<Body> {
    let id = serde_json::from_slice::<Value>(request).unwrap_or_default()["id"].take();
    let error = serde_json::json!({"code": -32001, "message": "not for you"});
    let answer = serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error});
    json(200, answer.to_string())
}
