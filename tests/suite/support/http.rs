//! Bodies and responses of the scripted server.

use futures_util::stream::{self, Stream, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response};
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) use crate::hyper_server::{Body, empty, event_stream, json};

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

/// A response that streams `first` and then `rest`, as events.
pub(crate) fn events(first: Option<Said>, rest: mpsc::Receiver<Said>) -> Response<Body> {
    let said = stream::iter(first).chain(received(rest));
    event_stream(said.map(|said| format!("event: message\ndata: {}\n\n", said.text())))
}

pub(crate) fn received<T>(receiver: mpsc::Receiver<T>) -> impl Stream<Item = T> {
    stream::unfold(receiver, |mut receiver| async {
        let received = receiver.recv().await?;
        Some((received, receiver))
    })
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
