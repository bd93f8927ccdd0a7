//! Legacy clients: what of their sessions raincheck reads, and what passes as it is.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Response};

use super::body::Body;
use super::tasks::Shared;
use super::{Read, pass, read};

mod companion;
mod contact;
mod lines;
pub mod pushes;
mod words;

/// A message, a stream or the end of a session, from the network.
pub(super) async fn answer(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    if parts.method != Method::POST {
        return other(front, parts, Some(body)).await;
    }
    match read(body, front.settings.body_bytes_max).await {
        Read::Whole(body) => Box::pin(post(front, parts, body)).await,
        // What is too large to look at is the server's own business, where it can be passed on.
        Read::TooLarge(begun, rest) if front.upstream.speaks_http() => {
            pass::begun(front, parts, begun, rest).await
        }
        Read::TooLarge(..) => Read::too_large(),
        Read::Refused(refusal) => refusal,
    }
}

/// A message, whose body was read.
pub(super) async fn post(front: &Shared, parts: Parts, body: Bytes) -> Response<Body> {
    if !front.upstream.is_decided() {
        return contact::post(front, parts, body).await;
    }
    if let Some(answered) = Box::pin(companion::post(front, &parts, &body)).await {
        return answered;
    }
    if front.upstream.speaks_http() {
        return pass::bytes(front, parts, body).await;
    }
    lines::post(front, &parts, &body).await
}

/// GET and DELETE. Without a body: from a client that speaks no HTTP itself.
pub(super) async fn other(front: &Shared, parts: Parts, body: Option<Incoming>) -> Response<Body> {
    if !front.upstream.is_decided() {
        return Box::pin(contact::other(front, parts, body)).await;
    }
    if front.upstream.speaks_http() {
        return pass::maybe_stream(front, parts, body).await;
    }
    lines::answer(front, &parts)
}
