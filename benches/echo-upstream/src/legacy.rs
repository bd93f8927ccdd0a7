//! The sessions of revision 2025-11-25.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use common::monotonic_ns;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};

use crate::answer::{Body, Dialect, initialized, json, refusal};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

static SESSIONS: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// Answers `initialize` with a new session.
pub(crate) fn open(id: &str, request: u64, dialect: Dialect) -> Response<Body> {
    let session = format!("s-{:x}-{request:x}", monotonic_ns());
    let mut response = dialect.respond(initialized(id, "2025-11-25"));
    if let Ok(value) = HeaderValue::from_str(&session) {
        response.headers_mut().insert(SESSION_ID, value);
    }
    sessions().insert(session);
    response
}

/// Ends the session that a request names.
pub(crate) fn close(headers: &HeaderMap) -> Response<Body> {
    if let Some(session) = named(headers) {
        sessions().remove(session);
    }
    json(StatusCode::OK, "")
}

/// Refuses a request without a session that is open.
pub(crate) fn check(headers: &HeaderMap, id: &str) -> Result<(), Box<Response<Body>>> {
    let Some(session) = named(headers) else {
        let message = "Mcp-Session-Id required";
        let refusal = refusal(StatusCode::BAD_REQUEST, id, -32000, message);
        return Err(Box::new(refusal));
    };
    if sessions().contains(session) {
        Ok(())
    } else {
        let message = "session not found";
        let refusal = refusal(StatusCode::NOT_FOUND, id, -32001, message);
        Err(Box::new(refusal))
    }
}

fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION_ID)?.to_str().ok()
}

fn sessions() -> MutexGuard<'static, HashSet<String>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}
