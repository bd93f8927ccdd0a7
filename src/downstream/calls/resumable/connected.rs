//! Calls to a server that speaks Streamable HTTP whose clients wait on their connections, and are sent progress while the
//! server is silent.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::Response;
use hyper::body::Body as _;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::over_http::{needs_log, untouched};
use super::respond::without_ids;
use super::resumable_call::{cancel_of, server_of};
use crate::downstream::body::Body;
use crate::downstream::calls::item::StreamItem;
use crate::downstream::calls::server_answer::{CallAtServer, ReadState, ServerAnswer};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::keepalive::Keepalive;
use crate::downstream::outbound::passed_call::PassedCall;
use crate::downstream::outbound::passed_heartbeat::PassedHeartbeat;
use crate::downstream::outbound::patience;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::outbound::stream::stream_of;
use crate::downstream::passed_body::PassedBody;
use crate::downstream::passing::{PassingRequest, ResponseRest};
use crate::downstream::passthrough::{self, unreachable_upstream};
use crate::downstream::proxy::Proxy;
use crate::runner::responder::CallAnswer;
use crate::upstream::relay::{Answering, Relayed};

/// A call whose client waits on its connection.
pub(in crate::downstream) struct ConnectedCall<'a> {
    pub id: &'a RawValue,
    pub tool: &'a str,
    pub heartbeat: Keepalive,
}

impl ConnectedCall<'_> {
    /// Returns the bound that ends the call, and the call's progress.
    fn begin(self, proxy: &Proxy, by: &Requester) -> (PassedCall, Keepalive) {
        let longest = Duration::from_millis(by.rules.for_tool(self.tool).0.max_duration_ms);
        let drained = proxy.passing_ends.clone();
        let call = PassedCall::begin(self.id, self.tool, longest, drained);
        (call, self.heartbeat)
    }
}

/// Posts a call of a legacy client. An answer that comes soon, and a stream that the server can resume, pass as they are.
pub(in crate::downstream) async fn post_connected(
    proxy: &Arc<Proxy>,
    by: &Requester,
    sent: (Parts, Bytes),
    call: ConnectedCall<'_>,
) -> Response<Body> {
    // Taken before anything is sent: a drain that begins meanwhile waits for the answer.
    let passing = proxy.passing.token();
    let id = call.id;
    let (call, heartbeat) = call.begin(proxy, by);
    // The end of a connection cancels nothing in the legacy protocol.
    let (server, cancel) = (server_of(proxy, &sent.0), cancel_of(id));
    let stop = async move { server.tell(cancel).await }.boxed();
    let call = call.stopped_by(proxy.passing.clone(), stop);
    let (parts, body) = sent;
    let at_server = at_server(proxy, by, id);
    let mut relaying = at_server.relay(parts.clone(), body);
    let patience = Instant::now() + by.head_patience(patience::LEGACY);
    // raincheck ends the call at its deadline by an event, which needs a stream by then.
    let patience = patience.min(call.deadline());
    let state = match timeout_at(patience, &mut relaying).await {
        Err(_elapsed) => ReadState::Waiting(relaying),
        Ok(Err(failure)) => return unreachable_upstream(&failure, Some(id)),
        Ok(Ok(Relayed::Passed(response))) => {
            return passthrough::response(response, Some(passing));
        }
        Ok(Ok(Relayed::Answer(mut answering))) => {
            proxy.upstream.answered_over_http();
            if !needs_log(&mut answering, id).await {
                let (head, begun, body) = untouched(*answering);
                return Response::from_parts(head, Body::passed(Some(begun), body, Some(passing)));
            }
            ReadState::Reading(answering)
        }
    };
    let items = ServerAnswer::new(at_server, Some(parts), state).items();
    read(ResponseRest::new(None, items), (call, heartbeat), passing)
}

/// Posts a call of a modern client. Whatever begins soon passes as it is, with progress between the events of a stream.
pub(in crate::downstream) async fn pass_connected(
    proxy: &Arc<Proxy>,
    by: &Requester,
    sent: (Parts, Bytes),
    call: ConnectedCall<'_>,
) -> Response<Body> {
    let passing = proxy.passing.token();
    let id = call.id;
    let (call, heartbeat) = call.begin(proxy, by);
    let (parts, body) = sent;
    let sent = body.clone();
    let kept = PassingRequest::of((&proxy.runner, &proxy.upstream), by, &sent);
    let at_server = at_server(proxy, by, id);
    let mut relaying = ResponseRest::new(kept, at_server.relay(parts, body));
    let patience = Instant::now() + by.head_patience(patience::MODERN);
    // The first progress and the end at the deadline are events, so they need a stream by then.
    let patience = patience.min(heartbeat.due_at()).min(call.deadline());
    match timeout_at(patience, &mut relaying).await {
        Err(_elapsed) => {
            let items = relaying.map(|relaying| {
                ServerAnswer::new(at_server, None, ReadState::Waiting(relaying)).items()
            });
            read(items.kept(), (call, heartbeat), passing)
        }
        Ok(Err(failure)) => Rpc::call_answer(id.get(), CallAnswer::Failed(failure)).into_response(),
        Ok(Ok(Relayed::Passed(response))) => passthrough::response(response, Some(passing)),
        Ok(Ok(Relayed::Answer(answering))) => {
            beating(*answering, relaying.passed(), (call, heartbeat), passing)
        }
    }
}

fn at_server(proxy: &Proxy, by: &Requester, id: &RawValue) -> CallAtServer {
    CallAtServer {
        upstream: Arc::clone(&proxy.upstream),
        id: id.to_owned(),
        bytes_max: usize::try_from(by.rules.result_bytes_max()).unwrap_or(usize::MAX),
    }
}

/// Returns a stream of the server's messages, which is read message by message.
fn read(
    items: ResponseRest<BoxStream<'static, StreamItem>>,
    (call, heartbeat): (PassedCall, Keepalive),
    passing: TaskTrackerToken,
) -> Response<Body> {
    let ended = stream::once(call.ended().map(StreamItem::Answer));
    // `select` polls both in turn, so a server that never pauses cannot outrun the end of the call.
    let items = items.map(|items| {
        let both = stream::select(items, ended).inspect(move |_| {
            // A drain waits for the answer.
            let _ = &passing;
        });
        both.boxed()
    });
    stream_of(without_ids(items.boxed()), None, Some(heartbeat))
}

/// The server's own answer. A stream has progress between its events.
fn beating(
    answering: Answering,
    kept: Option<PassingRequest<'_>>,
    (call, heartbeat): (PassedCall, Keepalive),
    passing: TaskTrackerToken,
) -> Response<Body> {
    let is_stream = answering.is_stream();
    // Nothing of the body was read, so none of it has begun.
    let (mut head, begun, body) = answering.untouched();
    // A body with a length is no stream that goes on.
    if !is_stream || body.size_hint().exact().is_some() {
        let body = PassedBody::Plain(body);
        return Response::from_parts(head, Body::passed(Some(begun), body, Some(passing)));
    }
    // Progress goes between the events, so a length of the server would cut the answer off.
    head.headers.remove(CONTENT_LENGTH);
    let body = Body::Passed {
        begun: None,
        body: PassedBody::of_call(&head.headers, body, kept),
        heartbeat: Some(Box::new(PassedHeartbeat::new(call, heartbeat))),
        _answer: Some(passing),
    };
    Response::from_parts(head, body)
}
