//! Calls of legacy clients that outlive a dropped connection (2025-11-25, Resumability and
//! Redelivery), whether or not the server has such a thing.
//!
//! A job of its own reads what the server says, writes it into a log in the store and shows it to
//! whoever reads the call's stream here: the client that called, and each time that it comes back.

use std::time::Duration;

use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::body::Body;
use super::inbound::requester::Requester;
use super::proxy::Shared;
use super::reply;
use crate::mcp::error::RpcError;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::task::id::TaskId;

mod budget;
mod call;
mod carry;
mod entry;
mod event_id;
mod hold;
mod kept;
pub mod live;
mod log;
mod pen;
mod reader;
mod relayed;
mod resume;
mod takeover;
mod words;

pub(super) use call::Call;
use call::{Place, primes};
use entry::{Entry, Meaning};
use event_id::PREFIX;
pub(super) use hold::hold;
use log::Log;
use reader::Reader;
pub(super) use relayed::post;
use takeover::Successor;

/// How long a client that comes back waits for a store that is away.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// A client waits for a request no more, by its notification. `false`: its call is not held here.
pub(super) fn cancelled(front: &Shared, by: &Requester, id: &RawValue) -> bool {
    by.session
        .is_some_and(|session| front.holds.cancelled(session, id))
}

/// A client that comes back to a held call, wherever it runs. `None`: to something of the server's.
pub(super) async fn resume(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
) -> Option<Response<Body>> {
    if parts.method != Method::GET {
        return None;
    }
    let last = parts.headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    let behind = last.strip_prefix(PREFIX)?;
    Some(Box::pin(replay(front, by, parts, behind)).await)
}

async fn replay(front: &Shared, by: &Requester, parts: &Parts, behind: &str) -> Response<Body> {
    let headers = &parts.headers;
    let read = || {
        let (hold, number) = behind.split_once('/')?;
        Some((TaskId::parse(hold)?, number.parse::<u64>().ok()?))
    };
    let (Some((hold, number)), Some(place)) = (read(), Place::of(by, headers)) else {
        return unknown();
    };
    let log = Log::of(front, &place, hold);
    let live = front.holds.find(log.name());
    let head = match patiently(|| log.head()).await {
        Ok(head) => head,
        // What runs here can be read without the store.
        Err(_) if live.is_some() => None,
        Err(error) => {
            tracing::warn!(%error, "a client came back while the store does not answer");
            let error = RpcError::internal("The task store does not answer; try again later");
            return reply::refusal(StatusCode::SERVICE_UNAVAILABLE, &error);
        }
    };
    let heartbeat = match &head {
        Some(head) => head.heartbeat(&log).await,
        None => None,
    };
    if live.is_none() && head.as_ref().is_some_and(|head| head.is_over) {
        let behind = patiently(|| log.behind(number)).await.unwrap_or_default();
        let is_shown = |(_, entry): &(u64, Entry)| entry.meaning() != Meaning::End;
        if !behind.iter().any(is_shown) {
            // A stream that ends at once is come back to again and again.
            return unknown();
        }
    }
    let mut reader = Reader::new(front, hold, log, heartbeat).behind(number);
    if primes(headers) {
        // Clients look for their place on the stream that was cut last.
        reader = reader.resumed();
    }
    let reader = match (live, head) {
        (Some(live), _) => reader.following(live),
        (None, Some(_)) => reader.asking(Successor::new(front, parts, place)),
        (None, None) => return unknown(),
    };
    reply::event_stream(Body::Events(reader.events()))
}

/// Not 404: that says that the session is lost, and its other calls with it. After any other
/// refusal real clients try twice more, and leave the session as it is.
fn unknown() -> Response<Body> {
    let error =
        RpcError::invalid_request("Invalid request: Last-Event-ID names no event that is kept");
    reply::refusal(StatusCode::BAD_REQUEST, &error)
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
