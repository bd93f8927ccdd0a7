//! A call that can be held: whose it is, and how its server is told that nobody waits.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::HeaderMap;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::downstream::dialect;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::legacy::pushes::SessionKey;
use crate::downstream::proxy::Shared;
use crate::mcp::envelope;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::task::id::Caller;
use crate::task::policy::Rule;

/// Clients of earlier revisions take an event without data for a message that is no JSON.
const FIRST_WITH_PRIMING: &str = "2025-11-25";

/// Whose call it is: only the same caller on the same session can come back to it.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) caller: Caller,
    pub(super) session: Box<str>,
}

impl Place {
    pub(super) fn of(by: &Requester, headers: &HeaderMap) -> Option<Self> {
        let session = headers.get(SESSION_ID)?.to_str().ok()?.into();
        let caller = by.caller;
        Some(Self { caller, session })
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey::of(&self.caller, &self.session)
    }
}

/// A call that can be held.
pub(in crate::downstream) struct Call {
    pub(super) place: Place,
    /// The request's.
    pub(super) id: Box<RawValue>,
    pub(super) progress_token: Option<Box<RawValue>>,
    /// Since when its client waits.
    pub(super) began: Instant,
    pub(super) rule: Rule,
    pub(super) primes: bool,
    pub(super) stop: Stop,
}

/// Tells the server that nobody waits any more. Not begun before that is so.
pub(super) type Stop = BoxFuture<'static, ()>;

impl Call {
    /// `None`: a request that is no call on a session, one of a client that reads no event streams,
    /// or one that shall become a task.
    pub(in crate::downstream) fn of(
        front: &Shared,
        by: &Requester,
        headers: &HeaderMap,
        id: &RawValue,
        method: &str,
        params: &Object<'_>,
    ) -> Option<Self> {
        let cannot_be = method != "tools/call"
            || dialect::wishes(headers, params)
            || by.is_piped
            || !by.reads_events;
        if cannot_be {
            return None;
        }
        let meta = params.get_object("_meta");
        let token = meta.and_then(|meta| meta.get(PROGRESS_TOKEN));
        let tool = params.get_str("name").unwrap_or_default();
        Some(Self {
            place: Place::of(by, headers)?,
            id: id.to_owned(),
            progress_token: token.map(ToOwned::to_owned),
            began: Instant::now(),
            rule: front.rules.for_tool(&tool).0.clone(),
            stop: std::future::ready(()).boxed(),
            primes: primes(headers),
        })
    }

    /// The most that one message of it may be.
    pub(super) fn bytes_max(&self) -> usize {
        usize::try_from(self.rule.result_bytes_max).unwrap_or(usize::MAX)
    }

    /// How long the head of its answer waits for the first word. What its client hears of it while the
    /// server says nothing, it hears on a stream.
    pub(in crate::downstream) fn head_patience(&self, by: &Requester, usual: Duration) -> Duration {
        if self.rule.heartbeat && self.progress_token.is_some() {
            return usual;
        }
        by.head_patience(usual)
    }

    /// With what tells the server that nobody waits any more: a `notifications/cancelled` of the
    /// client's own session, which `tell` sends.
    pub(in crate::downstream) fn stopped_by<F>(self, tell: impl FnOnce(String) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = tell(cancel_of(&self.id)).boxed();
        Self { stop, ..self }
    }
}

/// What tells a server that a call takes too long.
pub(super) fn cancel_of(id: &RawValue) -> String {
    let mut params = Writer::object();
    params.raw("requestId", id.get());
    params.str("reason", "The call did not end within its time limit");
    envelope::notification("notifications/cancelled", &params.end())
}

/// Whether a client takes an event without data for what it is.
pub(super) fn primes(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION);
    version.is_some_and(|version| version.as_bytes() >= FIRST_WITH_PRIMING.as_bytes())
}
