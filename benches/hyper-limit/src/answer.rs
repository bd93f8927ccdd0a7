//! Responses of this proxy itself.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

pub(crate) type Body = BoxBody<Bytes, Box<dyn Error + Send + Sync>>;

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into())
        .map_err(|never: Infallible| match never {})
        .boxed()
}

pub(crate) fn json(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(crate) fn result(id: &str, result: &str) -> Response<Body> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    json(StatusCode::OK, text)
}

pub(crate) fn refusal(status: StatusCode, id: &str, code: i64, message: &str) -> Response<Body> {
    let message = message.replace('"', "'");
    json(
        status,
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#),
    )
}
