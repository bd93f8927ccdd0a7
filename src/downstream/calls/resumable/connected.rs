//! Calls to a server that speaks Streamable HTTP whose clients wait on their connections, and are sent progress while the
//! server is silent.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use hyper::Response;
use hyper::body::Body as _;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::http_answer::{ReadState, Relaying, ServerAnswer};
use super::over_http::{needs_log, passed, untouched};
use super::respond::without_ids;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::keepalive::Keepalive;
use crate::downstream::outbound::passed_heartbeat::PassedHeartbeat;
use crate::downstream::outbound::patience;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::stream::stream_of;
use crate::downstream::passthrough::unreachable_upstream;
use crate::downstream::proxy::Proxy;
use crate::runner::responder::CallAnswer;
use crate::upstream::http::RequestBody;
use crate::upstream::relay::{Answering, Relayed};

/// Posts a call of a legacy client. An answer that comes soon, and a stream that the server can resume, pass as they are.
pub(in crate::downstream) async fn post_connected(
    proxy: &Arc<Proxy>,
    by: &Requester,
    sent: (Parts, Bytes),
    id: &RawValue,
    heartbeat: Keepalive,
) -> Response<Body> {
    let passing = proxy.passing.token();
    let (answer, mut relaying) = relay(proxy, by, sent, id);
    let patience = by.head_patience(patience::LEGACY);
    let state = match timeout(patience, &mut relaying).await {
        Err(_elapsed) => ReadState::Waiting(relaying),
        Ok(Err(failure)) => return unreachable_upstream(failure),
        Ok(Ok(Relayed::Passed(response))) => {
            return response.map(|body| passed(None, body, passing));
        }
        Ok(Ok(Relayed::Answer(mut answering))) => {
            proxy.upstream.answered_over_http();
            if !needs_log(&mut answering, id).await {
                let (head, begun, body) = untouched(*answering);
                return Response::from_parts(head, passed(Some(begun), body, passing));
            }
            ReadState::Reading(answering)
        }
    };
    read(answer.with_state(state), heartbeat, passing)
}

/// Posts a call of a modern client. Whatever begins soon passes as it is, with progress between the events of a stream.
pub(in crate::downstream) async fn pass_connected(
    proxy: &Arc<Proxy>,
    by: &Requester,
    sent: (Parts, Bytes),
    id: &RawValue,
    heartbeat: Keepalive,
) -> Response<Body> {
    let passing = proxy.passing.token();
    let (answer, mut relaying) = relay(proxy, by, sent, id);
    let patience = Instant::now() + by.head_patience(patience::MODERN);
    match timeout_at(patience.min(heartbeat.due_at()), &mut relaying).await {
        Err(_elapsed) => {
            let answer = answer.with_state(ReadState::Waiting(relaying));
            read(answer, heartbeat, passing)
        }
        Ok(Err(failure)) => Rpc::call_answer(id.get(), CallAnswer::Failed(failure)).into_response(),
        Ok(Ok(Relayed::Passed(response))) => response.map(|body| passed(None, body, passing)),
        Ok(Ok(Relayed::Answer(answering))) => beating(*answering, id, heartbeat, passing),
    }
}

/// Begins to relay a call. Nothing is sent until the answer is awaited.
fn relay(
    proxy: &Arc<Proxy>,
    by: &Requester,
    (parts, body): (Parts, Bytes),
    id: &RawValue,
) -> (ServerAnswer, Relaying) {
    let upstream = Arc::clone(&proxy.upstream);
    let bytes_max = usize::try_from(by.rules.result_bytes_max()).unwrap_or(usize::MAX);
    let answer = ServerAnswer::new(&upstream, &parts, id, bytes_max, ReadState::Answered);
    let body = RequestBody::Ready(body);
    let relaying = async move { upstream.relay(parts, body, bytes_max).await }.boxed();
    (answer, relaying)
}

/// A stream of what the server says, which is read message by message.
fn read(answer: ServerAnswer, heartbeat: Keepalive, passing: TaskTrackerToken) -> Response<Body> {
    let items = answer.items().inspect(move |_| {
        // A drain waits for the answer.
        let _ = &passing;
    });
    stream_of(without_ids(items.boxed()), None, Some(heartbeat))
}

/// The server's own answer. A stream has progress between its events.
fn beating(
    answering: Answering,
    id: &RawValue,
    heartbeat: Keepalive,
    passing: TaskTrackerToken,
) -> Response<Body> {
    let is_stream = answering.is_stream();
    let (mut head, begun, body) = answering.untouched();
    // A body with a length is no stream that goes on.
    if !is_stream || body.size_hint().exact().is_some() {
        return Response::from_parts(head, passed(Some(begun), body, passing));
    }
    head.headers.remove(CONTENT_LENGTH);
    let body = Body::Passed {
        begun: None,
        body,
        heartbeat: Some(Box::new(PassedHeartbeat::new(id, heartbeat))),
        _answer: Some(passing),
    };
    Response::from_parts(head, body)
}
