//! Calls of legacy clients that outlive a dropped connection (2025-11-25, Resumability and
//! Redelivery), whether or not the server has such a thing.
//!
//! A job of its own reads what the server says, writes it into a log in the store and shows it to
//! whoever reads the call's stream here: the client that called, and each time that it comes back.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt as _};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::body::Body;
use super::legacy::pushes::SessionKey;
use super::patience;
use super::reply;
use super::tasks::Shared;
use crate::mcp::error::RpcError;
use crate::mcp::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::task::id::{Caller, TaskId};
use crate::task::policy::Rule;
use crate::upstream::channel::session::Said;

mod budget;
mod carry;
mod kept;
pub mod live;
mod log;
mod pen;
mod reader;
mod relayed;
mod resume;
mod takeover;
mod words;

use log::{Entry, Log, Meaning};
use reader::Reader;
pub(super) use relayed::post;
use takeover::Successor;
use words::Word;

/// What our event ids begin with: `raincheck/<hold>/<number>`.
const PREFIX: &str = "raincheck/";

/// Clients of earlier revisions take an event without data for a message that is no JSON.
const FIRST_WITH_PRIMING: &str = "2025-11-25";

/// How long a client that comes back waits for a store that is away.
const STORE_PATIENCE: Duration = Duration::from_secs(5);
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// In the extensions of a request: its client has no connection that could be dropped without it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piped;

/// Whose call it is: only the same caller on the same session can come back to it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    caller: Caller,
    session: Box<str>,
}

impl Place {
    fn of(front: &Shared, headers: &HeaderMap) -> Option<Self> {
        let session = headers.get(SESSION_ID)?.to_str().ok()?.into();
        let caller = front.callers.of(headers);
        Some(Self { caller, session })
    }

    fn key(&self) -> SessionKey {
        SessionKey::of(&self.caller, &self.session)
    }
}

/// A call that can be held.
pub(super) struct Call {
    place: Place,
    /// The request's.
    id: Box<RawValue>,
    progress_token: Option<Box<RawValue>>,
    /// Since when its client waits.
    began: Instant,
    rule: Rule,
    primes: bool,
    stop: Stop,
}

/// Tells the server that nobody waits any more. Not begun before that is so.
type Stop = BoxFuture<'static, ()>;

impl Call {
    /// `None`: a request that is no call on a session, one of a client that reads no event streams,
    /// or one that shall become a task.
    pub(super) fn of(
        front: &Shared,
        parts: &Parts,
        id: &RawValue,
        method: &str,
        params: &Object<'_>,
    ) -> Option<Self> {
        let cannot_be = method != "tools/call"
            || super::dialect::wishes(&parts.headers, params)
            || parts.extensions.get::<Piped>().is_some();
        if cannot_be || !super::legacy::accepts_events(&parts.headers) {
            return None;
        }
        let meta = params.get_object("_meta");
        let token = meta.and_then(|meta| meta.get(PROGRESS_TOKEN));
        let tool = params.get_str("name").unwrap_or_default();
        Some(Self {
            place: Place::of(front, &parts.headers)?,
            id: id.to_owned(),
            progress_token: token.map(ToOwned::to_owned),
            began: Instant::now(),
            rule: front.rules.for_tool(&tool).0.clone(),
            stop: std::future::ready(()).boxed(),
            primes: primes(&parts.headers),
        })
    }
}

impl Call {
    /// The most that one message of it may be.
    fn bytes_max(&self) -> usize {
        usize::try_from(self.rule.result_bytes_max).unwrap_or(usize::MAX)
    }

    /// How long the head of its answer waits for the first word. What its client hears of it while the
    /// server says nothing, it hears on a stream.
    pub(super) fn head_patience(&self, headers: &HeaderMap, usual: Duration) -> Duration {
        if self.rule.heartbeat && self.progress_token.is_some() {
            return usual;
        }
        patience::of_legacy(headers, usual)
    }

    /// With what tells the server that nobody waits any more: a `notifications/cancelled` of the
    /// client's own session, which `tell` sends.
    pub(super) fn stopped_by<F>(self, tell: impl FnOnce(String) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = tell(cancel_of(&self.id)).boxed();
        Self { stop, ..self }
    }
}

/// What tells a server that a call takes too long.
fn cancel_of(id: &RawValue) -> String {
    let mut params = Writer::object();
    params.raw("requestId", id.get());
    params.str("reason", "The call did not end within its time limit");
    let mut out = Writer::object();
    out.str("jsonrpc", "2.0");
    out.str("method", "notifications/cancelled");
    out.raw("params", &params.end());
    out.end()
}

/// Holds a call from here on: what its source says is read whether or not the client is there. The
/// source ends after the answer, or without one where its client wants none any more.
///
/// Without room for another one, the call ends with its client's connection, as it did before.
pub(super) fn hold(front: &Shared, call: Call, source: BoxStream<'static, Said>) -> Response<Body> {
    hold_words(front, call, source.map(Word::from).boxed())
}

/// The same for a source that tells where it can be come back to.
fn hold_words(front: &Shared, call: Call, source: BoxStream<'static, Word>) -> Response<Body> {
    let hold = TaskId::random();
    let log = Log::of(front, &call.place, hold);
    let primes = call.primes;
    let (stream, heartbeat) = match carry::begin(front, call, log.clone(), source) {
        Ok(begun) => begun,
        Err(source) => return reply::event_stream(Body::Events(reader::unheld(source))),
    };
    let reader = Reader::new(front, hold, log, heartbeat).following(stream);
    let reader = if primes { reader.primed() } else { reader };
    reply::event_stream(Body::Events(reader.events()))
}

fn primes(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION);
    version.is_some_and(|version| version.as_bytes() >= FIRST_WITH_PRIMING.as_bytes())
}

/// A client waits for a request no more, by its notification. `false`: its call is not held here.
pub(super) fn cancelled(front: &Shared, headers: &HeaderMap, id: &RawValue) -> bool {
    Place::of(front, headers).is_some_and(|place| front.holds.cancelled(place.key(), id))
}

/// A client that comes back to a held call, wherever it runs. `None`: to something of the server's.
pub(super) async fn resume(front: &Shared, parts: &Parts) -> Option<Response<Body>> {
    if parts.method != Method::GET {
        return None;
    }
    let last = parts.headers.get(LAST_EVENT_ID)?.to_str().ok()?;
    let behind = last.strip_prefix(PREFIX)?;
    Some(Box::pin(replay(front, parts, behind)).await)
}

async fn replay(front: &Shared, parts: &Parts, behind: &str) -> Response<Body> {
    let headers = &parts.headers;
    let read = || {
        let (hold, number) = behind.split_once('/')?;
        Some((TaskId::parse(hold)?, number.parse::<u64>().ok()?))
    };
    let (Some((hold, number)), Some(place)) = (read(), Place::of(front, headers)) else {
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

/// What an event's id is, on every replica.
fn event_id(hold: TaskId, number: u64) -> String {
    format!("{PREFIX}{hold}/{number}")
}
