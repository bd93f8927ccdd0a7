//! A client's DELETE on a session that raincheck still needs.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::http::request::Parts;

use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::mcp::headers::SESSION_ID;
use crate::upstream::client_session::ClientSession;
use crate::upstream::http::RequestBody;

/// Upper bound of the time in which the server ends a session.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The session that a DELETE names.
pub(super) fn session(proxy: &Proxy, by: &Requester, parts: &Parts) -> Option<ClientSession> {
    if parts.method != Method::DELETE || !parts.headers.contains_key(SESSION_ID) {
        return None;
    }
    let caller = *by.caller.as_bytes();
    proxy.upstream.client_session(&parts.headers, caller)
}

/// Ends the session behind the calls that became tasks and run on it: servers cancel what runs on a session that
/// ends.
pub(super) fn end_later(proxy: &Arc<Proxy>, parts: Parts, session: ClientSession) {
    if session.begin_to_end() {
        let job = end(Arc::clone(proxy), parts, session);
        proxy.runner.spawn_tracked(job);
    }
}

/// Waits for the calls, which have a time limit, and ends the session.
async fn end(proxy: Arc<Proxy>, mut parts: Parts, session: ClientSession) {
    let rules = proxy.runner.rules();
    let longest = rules.entries().map(|rule| rule.max_duration_ms);
    let longest = longest.fold(rules.defaults().max_duration_ms, u64::max);
    let unneeded = session.needed_no_more();
    // A client that makes further calls on a session that it ended does not keep the session longer.
    let is_ours = tokio::time::timeout(Duration::from_millis(longest), unneeded).await;
    if is_ours == Ok(false) {
        // Another replica uses the session. The server ends the session by itself.
        return;
    }
    session.end();
    // On a line there is no DELETE: `end` has stopped the line, and the server sees that.
    if !proxy.upstream.speaks_http() {
        return;
    }
    // This DELETE has no body, so the lengths that its client announced must not reach the server.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let ending = proxy.upstream.pass(Box::new(parts), RequestBody::empty());
    // Only logged: the client received its 200 before the calls ended.
    if !matches!(tokio::time::timeout(END_PATIENCE, ending).await, Ok(Ok(_))) {
        tracing::debug!("a server could not be told that a session is over");
    }
}
