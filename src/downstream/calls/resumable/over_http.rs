//! Calls to a server that speaks Streamable HTTP: passed on as they are, and made resumable here where the
//! server itself does not resume them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::http::response::Parts as ResponseHead;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::reader::RETRY_MS;
use super::respond::hold;
use super::resumable_call::{ResumableCall, server_of};
use crate::downstream::body::Body;
use crate::downstream::calls::server_answer::{CallAtServer, ReadState, ServerAnswer, is_answer};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::patience;
use crate::downstream::passed_body::PassedBody;
use crate::downstream::passthrough::{self, unreachable_upstream};
use crate::downstream::proxy::Proxy;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::sse;
use crate::upstream::relay::{Answering, Relayed};

/// Upper bound of the time in which a stream that began shows that the server can resume it.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);

pub(in crate::downstream) async fn post(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Parts,
    body: Bytes,
    call: ResumableCall,
) -> Response<Body> {
    let patience = call.head_patience(by, patience::LEGACY);
    let call = call.at(server_of(proxy, &parts));
    let at_server = CallAtServer {
        upstream: Arc::clone(&proxy.upstream),
        id: call.id.clone(),
        bytes_max: call.bytes_max(),
    };
    // Taken before the request is sent: a drain that begins meanwhile waits for the answer.
    let passing = proxy.passing.token();
    let mut relaying = at_server.relay(parts.clone(), body);
    let answer = |state| ServerAnswer::new(at_server, Some(parts), state);
    let Ok(relayed) = timeout(patience, &mut relaying).await else {
        return hold(proxy, call, answer(ReadState::Waiting(relaying)).items());
    };
    match relayed {
        Err(failure) => unreachable_upstream(&failure, Some(&call.id)),
        Ok(Relayed::Passed(response)) => passthrough::response(response, Some(passing)),
        Ok(Relayed::Answer(mut answering)) => {
            proxy.upstream.answered_over_http();
            if !needs_log(&mut answering, &call.id).await {
                let (head, begun, body) = untouched(*answering);
                return Response::from_parts(head, Body::passed(Some(begun), body, Some(passing)));
            }
            // `hold` makes a head of raincheck's own, and the client needs the server's session id.
            let session = answering.head.headers.get(SESSION_ID).cloned();
            let answer = answer(ReadState::Reading(answering));
            let mut response = hold(proxy, call, answer.items());
            if let Some(session) = session {
                response.headers_mut().insert(SESSION_ID, session);
            }
            response
        }
    }
}

/// The server's own stream, with a `retry` of at least a second: clients come back only a few times, and would
/// give up before a restart of raincheck is over.
pub(super) fn untouched(answering: Answering) -> (ResponseHead, Bytes, PassedBody) {
    let pause = answering.retry();
    let (head, begun, body) = answering.untouched();
    let body = PassedBody::Plain(body);
    let is_short = pause.is_some_and(|pause| pause < Duration::from_millis(RETRY_MS));
    // A body with a length is no stream that goes on.
    if is_short && !head.headers.contains_key(CONTENT_LENGTH) {
        return (head, sse::with_retry(&begun, RETRY_MS).into(), body);
    }
    (head, begun, body)
}

/// Returns `true` if raincheck must make the stream resumable: the answer does not come at once, and the server gives
/// no event ids.
pub(super) async fn needs_log(answering: &mut Answering, id: &RawValue) -> bool {
    if !answering.is_stream() {
        return false;
    }
    match timeout(FIRST_PATIENCE, answering.first()).await {
        Ok(Ok(Some((message, has_id)))) => !has_id && !is_answer(message, id),
        // A stream that cannot be read here passes as it is.
        Ok(Err(_)) => false,
        // Nothing has shown so far that the server gives its events ids.
        Ok(Ok(None)) | Err(_) => true,
    }
}
