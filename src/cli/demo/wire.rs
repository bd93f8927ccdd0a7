//! JSON-RPC and HTTP in the few shapes that the demo needs.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

pub(super) type DemoBody = UnsyncBoxBody<Bytes, Infallible>;

/// The value at a JSON pointer; `null` if there is none.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

/// Takes the value at a JSON pointer out.
pub(super) fn take(value: &mut Value, pointer: &str) -> Value {
    value
        .pointer_mut(pointer)
        .map(Value::take)
        .unwrap_or_default()
}

pub(super) fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(super) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

pub(super) fn json_body(message: &Value) -> Response<DemoBody> {
    let body = Full::new(Bytes::from(message.to_string())).boxed_unsync();
    with_type(StatusCode::OK, "application/json", body)
}

pub(super) fn plain(status: StatusCode) -> Response<DemoBody> {
    with_type(status, "text/plain", Full::default().boxed_unsync())
}

pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: DemoBody,
) -> Response<DemoBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, value);
    response
}
