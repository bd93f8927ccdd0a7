//! The first words of a legacy client to a server of which nobody knows yet how it is spoken to.
//!
//! They pass as to any server. One that refuses them may speak HTTP+SSE only: then it is asked, and
//! the client has a session here.

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::super::body::Body;
use super::super::dialect::Edit;
use super::super::pass;
use super::super::tasks::Shared;
use super::{lines, pass_on, stream};

pub(super) async fn post(
    front: &Shared,
    parts: Parts,
    body: Bytes,
    edit: Option<Edit>,
) -> Response<Body> {
    let again = edit.clone();
    let response = pass_on(front, parts.clone(), body.clone(), edit).await;
    if response.status().is_success() {
        front.upstream.answered_over_http();
    } else if turns_out_old(front, &parts, response.status()).await {
        return lines::post(front, &parts, &body, again).await;
    }
    response
}

/// GET and DELETE.
pub(super) async fn other(front: &Shared, parts: Parts, body: Option<Incoming>) -> Response<Body> {
    if stream::is_read(&parts) {
        // From before raincheck was started: who has a session was answered already.
        let known = front.upstream.era(front.credentials(&parts.headers)).await;
        if known.is_ok() && front.upstream.is_decided() {
            return Box::pin(super::other(front, parts, body)).await;
        }
    }
    let response = pass::maybe_stream(front, parts.clone(), body).await;
    if turns_out_old(front, &parts, response.status()).await {
        return lines::answer(front, &parts);
    }
    response
}

async fn turns_out_old(front: &Shared, parts: &Parts, status: StatusCode) -> bool {
    let may_be = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    );
    let credentials = front.credentials(&parts.headers);
    may_be && front.upstream.era(credentials).await.is_ok() && !front.upstream.speaks_http()
}
