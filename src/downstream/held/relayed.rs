//! Calls to a server that speaks Streamable HTTP: passed on as they are, and held where the server
//! itself lets nobody come back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Full;
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::http::response::Parts as ResponseHead;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::call::Call;
use super::hold::hold_words;
use super::reader::RETRY_MS;
use super::words::{Relaying, Stage, Words, is_answer};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::pass::unreachable_upstream;
use crate::downstream::proxy::Shared;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::sse;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::relay::{Answering, Relayed};

/// How long the response head waits for the server's, so that errors ride their own status.
const HEAD_PATIENCE: Duration = Duration::from_secs(3);

/// How long a stream that began may take to say that it can be come back to.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);

pub(in crate::downstream) async fn post(
    front: &Shared,
    by: &Requester,
    parts: Parts,
    body: Bytes,
    call: Call,
) -> Response<Body> {
    let patience = call.head_patience(by, HEAD_PATIENCE);
    let call = stoppable(front, &parts, call);
    let upstream = Arc::clone(&front.upstream);
    let bytes_max = call.bytes_max();
    let words = words(front, &parts, &call);
    let body = RequestBody::Ready(Full::new(body));
    let passing = front.passing.token();
    let mut relaying: Relaying =
        async move { upstream.relay(parts, body, bytes_max).await }.boxed();
    let Ok(relayed) = timeout(patience, &mut relaying).await else {
        let stage = Stage::Waiting(relaying);
        return hold_words(front, call, Words { stage, ..words }.spoken());
    };
    match relayed {
        Err(failure) => unreachable_upstream(failure),
        Ok(Relayed::Passed(response)) => response.map(|body| Body::Passed {
            begun: None,
            body,
            _answer: Some(passing),
        }),
        Ok(Relayed::Answer(mut answering)) => {
            front.upstream.answered_over_http();
            if !needs_hold(&mut answering, &call.id).await {
                let (head, begun, body) = untouched(*answering);
                let body = Body::Passed {
                    begun: Some(begun).filter(|begun| !begun.is_empty()),
                    body,
                    _answer: Some(passing),
                };
                return Response::from_parts(head, body);
            }
            let session = answering.head.headers.get(SESSION_ID).cloned();
            let stage = Stage::Reading(answering);
            let words = Words { stage, ..words }.spoken();
            let mut response = hold_words(front, call, words);
            if let Some(session) = session {
                response.headers_mut().insert(SESSION_ID, session);
            }
            response
        }
    }
}

/// What can be read of a call that its client's request tells of.
fn words(front: &Shared, parts: &Parts, call: &Call) -> Words {
    Words {
        upstream: Arc::clone(&front.upstream),
        parts: parts.clone(),
        id: call.id.clone(),
        bytes_max: call.bytes_max(),
        stage: Stage::Answered,
    }
}

fn stoppable(front: &Shared, parts: &Parts, call: Call) -> Call {
    let (upstream, parts) = (Arc::clone(&front.upstream), parts.clone());
    call.stopped_by(|text| async move {
        let told = upstream.tell_as(parts, text).await;
        if told.is_err() {
            tracing::debug!("a server could not be told that nobody waits");
        }
    })
}

/// The server's own stream, but for a pause that would not outlast a restart of ours: clients come
/// back a few times only, and would have given up by then.
fn untouched(answering: Answering) -> (ResponseHead, Bytes, ResponseBody) {
    let pause = answering.retry();
    let (head, begun, body) = answering.untouched();
    let is_short = pause.is_some_and(|pause| pause < Duration::from_millis(RETRY_MS));
    // What has a length is no stream that goes on.
    if is_short && !head.headers.contains_key(CONTENT_LENGTH) {
        return (head, sse::with_retry(&begun, RETRY_MS).into(), body);
    }
    (head, begun, body)
}

/// Not what is answered at once, and no stream to which its server lets its client come back.
async fn needs_hold(answering: &mut Answering, id: &RawValue) -> bool {
    if !answering.is_stream() {
        return false;
    }
    match timeout(FIRST_PATIENCE, answering.first()).await {
        Ok(Ok(Some((message, has_id)))) => !has_id && !is_answer(message, id),
        // What cannot be read here passes as it is.
        Ok(Err(_)) => false,
        Ok(Ok(None)) | Err(_) => true,
    }
}
