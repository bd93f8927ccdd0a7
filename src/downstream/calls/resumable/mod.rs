//! RESUMABLE CALLS: calls of legacy clients that outlive a dropped connection (2025-11-25, Resumability and
//! Redelivery), whether or not the server can resume its streams.
//!
//! A job reads the server's events, writes them into a log in the store, and shows them to the readers on this
//! replica: the client that called, and the client each time that it comes back.

use std::sync::Arc;
use std::time::Duration;

use hyper::http::request::Parts;
use hyper::{Method, Response};
use tokio::time::Instant;

use crate::base::unfold::Unfold as _;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Proxy;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::runner::call_log::entry::{EntryKind, LogEntry};
use crate::runner::call_log::log::EventLog;
use crate::runner::call_log::standing::CallStanding;
use crate::store::StoreError;
use crate::task::id::TaskId;
use crate::telemetry::repeats::OF_OUTAGE;

mod connected;
mod event_id;
mod event_source;
mod job;
mod kept;
mod large_answers;
mod over_http;
mod reader;
pub mod registry;
mod respond;
mod resumable_call;
mod takeover;

pub(in crate::downstream) use connected::{ConnectedCall, pass_connected, post_connected};
use event_id::PREFIX;
pub(in crate::downstream) use over_http::post;
use reader::LogReader;
pub(in crate::downstream) use respond::respond;
use resumable_call::{CallerSession, primes};
pub(in crate::downstream) use resumable_call::{ResumableCall, ServerOfCall, Waiting};
use takeover::Takeover;

/// The time that a client that comes back waits for a store that is away.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// The last event that a client has which comes back to a call: its id without the prefix. `None`: the client asks for
/// something of the server's.
pub(in crate::downstream) fn last_event(parts: &Parts) -> Option<&str> {
    let id = parts.headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    id.strip_prefix(PREFIX)
        .filter(|_| parts.method == Method::GET)
}

/// Responds to a client that comes back to a call behind this event, on any replica.
pub(in crate::downstream) async fn resume(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: &Parts,
    last: &str,
) -> Response<Body> {
    let headers = &parts.headers;
    let read = || {
        let (call, number) = last.split_once('/')?;
        Some((TaskId::parse(call)?, number.parse::<u64>().ok()?))
    };
    let (Some((call, number)), Some(session)) = (read(), CallerSession::of(by, headers)) else {
        return unknown();
    };
    let log = session.log(proxy, call);
    // Taken before the store is asked: a call that ends meanwhile can still be read from memory.
    let recent = proxy.resumable.find(log.name());
    let stands = match patiently(|| log.standing()).await {
        Ok(stands) => stands,
        // A call that runs here can be read without the store.
        Err(_) if recent.is_some() => None,
        Err(error) => return store_is_away(&error),
    };
    let heartbeat = match &stands {
        Some(stands) => reader::heartbeat(&log, &stands.terms).await,
        // The terms of the call are in its record only, so without the store raincheck sends no progress of its own.
        None => None,
    };
    if recent.is_none()
        && let Some(stands) = &stands
    {
        match is_all_told(&log, stands, number).await {
            Ok(false) => {}
            // A client comes back again and again to a stream that ends at once.
            Ok(true) => return unknown(),
            Err(error) => return store_is_away(&error),
        }
    }
    let mut reader = LogReader::new(proxy, call, log, heartbeat).behind(number);
    if primes(headers) {
        reader = reader.resumed();
    }
    let reader = match (recent, stands) {
        (Some(recent), _) => reader.of_local(recent),
        (None, Some(_)) => reader.of_remote(Takeover::new(proxy, parts, session)),
        (None, None) => return unknown(),
    };
    response::event_stream(Body::events(reader.into_stream()))
}

/// Returns `true` if the call is over, and nothing of it comes behind this entry.
async fn is_all_told(
    log: &EventLog,
    stands: &CallStanding,
    number: u64,
) -> Result<bool, StoreError> {
    if !stands.is_over {
        return Ok(false);
    }
    let behind = patiently(|| log.behind(number)).await?;
    let is_shown = |(_, entry): &(u64, LogEntry)| entry.kind() != EntryKind::End;
    if behind.iter().any(is_shown) {
        return Ok(false);
    }
    // The error of a call that was ended without a last entry is for every client that comes back.
    if stands.error.is_none() {
        return Ok(true);
    }
    patiently(|| log.is_complete()).await
}

/// A client that comes back later keeps its place.
fn store_is_away(error: &StoreError) -> Response<Body> {
    tracing::warn!(name: OF_OUTAGE, %error, "a client came back while the store does not answer");
    response::store_unavailable()
}

/// No stream is offered behind this event (2025-11-25, Listening for Messages from the Server). The official clients end
/// their attempts in silence then. After 404 the session would be lost, and after another refusal some clients give it up,
/// too.
fn unknown() -> Response<Body> {
    response::not_allowed("POST, DELETE")
}

async fn patiently<T, E, F>(mut ask: impl FnMut() -> F) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let until = Instant::now() + STORE_PATIENCE;
    loop {
        match ask().await {
            Err(_) if Instant::now() < until => tokio::time::sleep(STORE_PAUSE).await,
            answered => return answered,
        }
    }
}
