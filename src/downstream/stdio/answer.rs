//! Finds the answer to one request in a response.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::Response;
use hyper::header::CONTENT_TYPE;

use crate::downstream::body::Body;
use crate::mcp::json::{Object, is_object, set};
use crate::mcp::sse::Decoder;

/// The answer to the request with that id, as soon as it comes. All other messages are dropped.
pub(super) async fn answer_to(response: Response<Body>, id: &str) -> Option<String> {
    let streams = is_stream(&response);
    let mut body = response.into_body();
    if !streams {
        let read = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
        return named(&read.ok()?.to_bytes(), id);
    }
    let mut decoder = Decoder::new(MESSAGE_BYTES_MAX);
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let mut answer = None;
        let fed = decoder.feed(&data, |event| {
            if event.is_message() && is_answer(&event.data, id) {
                answer = Some(event.data);
            }
        });
        // An answer that came whole before a fault still counts, so it is returned in both cases.
        if answer.is_some() || fed.is_err() {
            return answer;
        }
    }
    None
}

pub(super) fn is_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/event-stream")
}

/// The largest message. A larger one ends its stream.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A JSON-RPC response under the request's own id. A refusal of an unread request has no id, or one of the server's.
/// An error of another protocol than JSON-RPC is no answer.
pub(super) fn named(bytes: &Bytes, id: &str) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let object = Object::parse(text).ok()?;
    let is_answer = object.contains("result") || object.get("error").is_some_and(is_object);
    if !is_answer || object.get_str("jsonrpc").as_deref() != Some("2.0") {
        return None;
    }
    match object.get("id") {
        Some(own) if own.get() == id => Some(text.to_owned()),
        // The client finds its request only by the id that it sent itself.
        _ => set(text, "id", id).ok(),
    }
}

pub(super) fn is_answer(message: &str, id: &str) -> bool {
    Object::parse(message).is_ok_and(|object| {
        // A request of the server may have the same id, because each side numbers its own requests.
        !object.contains("method") && object.get("id").is_some_and(|own| own.get() == id)
    })
}
