//! A client's DELETE on a session that raincheck still needs.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Shared;
use crate::mcp::headers::SESSION_ID;
use crate::upstream::client_session::ClientSession;
use crate::upstream::http::RequestBody;

/// How long the server may take to end it.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Answers at once where calls that became tasks run on the session, and ends it behind them: servers
/// cancel what runs on a session that ends. `None`: nothing is needed of it.
pub(super) fn answer(front: &Shared, by: &Requester, parts: &Parts) -> Option<Response<Body>> {
    if !parts.headers.contains_key(SESSION_ID) {
        return None;
    }
    let caller = *by.caller.as_bytes();
    let session = front.upstream.client_session(&parts.headers, caller)?;
    if !session.is_needed() {
        return None;
    }
    if session.begin_to_end() {
        let job = end(Arc::clone(front), parts.clone(), session);
        front.runner.attend(job);
    }
    Some(response::empty(StatusCode::OK))
}

/// Waits for the calls, which have a time limit, and ends the session.
async fn end(front: Shared, mut parts: Parts, session: ClientSession) {
    let rules = &front.rules;
    let longest = rules.entries().map(|rule| rule.max_duration_ms);
    let longest = longest.fold(rules.defaults().max_duration_ms, u64::max);
    let unneeded = session.needed_no_more();
    // A client that goes on calling on a session that it has ended keeps it no longer.
    let is_ours = tokio::time::timeout(Duration::from_millis(longest), unneeded).await;
    if is_ours == Ok(false) {
        // The server ends it by itself, some day.
        return;
    }
    session.end();
    if !front.upstream.speaks_http() {
        return;
    }
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let ending = front.upstream.pass(parts, RequestBody::empty());
    if !matches!(tokio::time::timeout(END_PATIENCE, ending).await, Ok(Ok(_))) {
        tracing::debug!("a server could not be told that a session is over");
    }
}
