//! The texts of answers, and the HTTP responses around them.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use crate::request::ToolArguments;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Which revision a path speaks, and how it answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialect {
    /// Revision 2026-07-28, else 2025-11-25.
    pub(crate) is_modern: bool,
    /// Answers are event streams, else JSON.
    pub(crate) streams: bool,
}

impl Dialect {
    /// The first member of a result, which only the modern revision has.
    pub(crate) fn result_type(self) -> &'static str {
        if self.is_modern {
            r#""resultType":"complete","#
        } else {
            ""
        }
    }

    /// The answer of a call, in the form of this path.
    pub(crate) fn respond(self, answer: String) -> Response<Body> {
        if self.streams {
            event_stream(full(event(&answer)))
        } else {
            json(StatusCode::OK, answer)
        }
    }

    /// A JSON-RPC error. Revision 2025-11-25 answers errors with status 200.
    pub(crate) fn refuse(
        self,
        status: StatusCode,
        id: &str,
        code: i64,
        message: &str,
    ) -> Response<Body> {
        let status = if self.is_modern {
            status
        } else {
            StatusCode::OK
        };
        refusal(status, id, code, message)
    }
}

/// The result of a call that says `text`.
pub(crate) fn call_result(id: &str, text: &str, dialect: Dialect) -> String {
    let text = serde_json::Value::from(text);
    let result_type = dialect.result_type();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{{result_type}"content":[{{"type":"text","text":{text}}}],"isError":false}}}}"#
    )
}

/// What `big` says: the nonce, and that many bytes more.
pub(crate) fn big_text(arguments: &ToolArguments) -> String {
    format!("{}|{}", arguments.nonce, "x".repeat(arguments.bytes))
}

/// A result that is no tool's.
pub(crate) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The result of `initialize`.
pub(crate) fn initialized(id: &str, version: &str) -> String {
    let result = format!(
        r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":false}}}},"serverInfo":{{"name":"echo-upstream","version":"0.1.0"}}}}"#
    );
    self::result(id, &result)
}

pub(crate) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

/// A body of one frame an item.
pub(crate) fn frames(items: impl Stream<Item = String> + Send + 'static) -> Body {
    use futures_util::StreamExt as _;
    let frames = items.map(|item| Ok::<_, Infallible>(Frame::data(Bytes::from(item))));
    StreamBody::new(frames).boxed_unsync()
}

pub(crate) fn json(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(crate) fn event_stream(body: Body) -> Response<Body> {
    const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would otherwise keep events back until its buffer is full.
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    response
}

pub(crate) fn refusal(status: StatusCode, id: &str, code: i64, message: &str) -> Response<Body> {
    json(
        status,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#),
    )
}
