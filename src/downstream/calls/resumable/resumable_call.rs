//! A call that can be resumed: the session that made it, and the notification to the server that no client waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::HeaderMap;
use hyper::http::request::Parts;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::downstream::inbound::idempotency::{digest, is_all_of_call};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::Keepalive;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::v2025;
use crate::mcp::envelope;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::request::Request;
use crate::mcp::version::FIRST_WITH_PRIMING;
use crate::runner::CallClient;
use crate::runner::call_log::log::EventLog;
use crate::runner::claim::CallClaim;
use crate::task::clocks::RungClock;
use crate::task::digest::Digest;
use crate::task::id::{Caller, TaskId};
use crate::task::policy::Rule;

/// Upper bound of the time in which a server answers a cancelled call. Many never answer one.
pub(super) const CANCELLED_PATIENCE: Duration = Duration::from_secs(30);

/// A session of a caller: only the same caller on the same session can come back to a call.
#[derive(Debug, Clone)]
pub(super) struct CallerSession {
    pub(super) caller: Caller,
    pub(super) id: Box<str>,
}

impl CallerSession {
    pub(super) fn of(by: &Requester, headers: &HeaderMap) -> Option<Self> {
        let id = headers.get(SESSION_ID)?.to_str().ok()?.into();
        let caller = by.caller;
        Some(Self { caller, id })
    }

    pub(super) fn key(&self) -> SessionKey {
        SessionKey::of(&self.caller, &self.id)
    }

    /// The log of a call of this session.
    pub(super) fn log(&self, proxy: &Proxy, call: TaskId) -> EventLog {
        EventLog::of(&proxy.runner, self.caller, &self.id, call)
    }
}

/// A call that can be resumed: it goes on when its connection is cut.
pub(in crate::downstream) struct ResumableCall {
    pub(super) session: CallerSession,
    /// The id of the request.
    pub(super) id: Box<RawValue>,
    pub(super) tool: Box<str>,
    /// Since when the client waits.
    pub(super) began: Instant,
    pub(super) rule: Arc<Rule>,
    /// The progress token of a client that is sent progress while the server is silent.
    pub(super) heartbeat: Option<Box<RawValue>>,
    pub(super) primes: bool,
    pub(super) server: ServerOfCall,
    /// The call in the form that the runner needs, should its client give it up. `None`: then it is cancelled.
    pub(super) kept_as: Option<Box<KeptAs>>,
}

/// The parts of a call that the runner needs if its client gives the call up.
#[derive(Debug)]
pub(super) struct KeptAs {
    pub(super) client: CallClient,
    pub(super) digest: Digest,
    pub(super) claim: CallClaim,
    began: Instant,
    /// See [`is_all_of_call`].
    pub(super) is_all_of_call: bool,
    /// Progress may start the client's clock anew.
    pub(super) progress_token: Option<Box<RawValue>>,
}

impl KeptAs {
    /// The clock of a client that has just said that its clock ended.
    pub(super) fn rung_clock(&self, tool: &str) -> Option<RungClock> {
        let clock = self.client.clock_of(tool);
        let name = clock.filter(|_| self.progress_token.is_none())?;
        let waited = Instant::now().saturating_duration_since(self.began);
        Some(RungClock { name, waited })
    }
}

/// The way the client of a call waits for it.
pub(in crate::downstream) enum Waiting {
    /// The client can come back to the call.
    Resumable(Box<ResumableCall>),
    /// On its connection, with the progress that raincheck sends while the server is silent.
    Connected(Option<Keepalive>),
}

impl Waiting {
    pub(in crate::downstream) fn of(
        by: &Requester,
        headers: &HeaderMap,
        request: &Request<'_>,
    ) -> Self {
        if let Some(call) = ResumableCall::of(by, headers, request) {
            return Self::Resumable(Box::new(call));
        }
        if !is_awaited(by, headers, request) {
            return Self::Connected(None);
        }
        let tool = request.params.get_str("name").unwrap_or_default();
        let token = heartbeat(by, by.rules.for_tool(&tool).0, &request.params);
        let since = |token: &RawValue| Keepalive::since(Instant::now(), token.to_owned());
        Self::Connected(token.map(since))
    }

    pub(in crate::downstream) fn is_resumable(&self) -> bool {
        matches!(self, Self::Resumable(_))
    }

    /// A call that raincheck carries: its carrier keeps it, should its client give it up.
    pub(in crate::downstream) fn carried(mut self) -> Self {
        if let Self::Resumable(call) = &mut self {
            call.kept_as = None;
        }
        self
    }

    /// See [`ResumableCall::at`].
    pub(in crate::downstream) fn at(self, server: ServerOfCall) -> Self {
        match self {
            Self::Resumable(call) => Self::Resumable(Box::new(call.at(server))),
            Self::Connected(_) => self,
        }
    }
}

/// Sends the server a message on the session of a call, in the client's name.
#[derive(Clone)]
pub(in crate::downstream) struct ServerOfCall(
    Arc<dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync>,
);

impl ServerOfCall {
    pub(in crate::downstream) fn new<F>(tell: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |text| tell(text).boxed()))
    }

    /// A server that needs no message.
    pub(super) fn silent() -> Self {
        Self::new(|_| std::future::ready(()))
    }

    pub(super) async fn tell(&self, text: String) {
        self.0(text).await;
    }
}

/// Sends the server messages with the head of a request of the client's.
pub(super) fn server_of(proxy: &Proxy, parts: &Parts) -> ServerOfCall {
    let (upstream, parts) = (Arc::clone(&proxy.upstream), Arc::new(parts.clone()));
    ServerOfCall::new(move |text| {
        let (upstream, parts) = (Arc::clone(&upstream), Parts::clone(&parts));
        async move {
            if upstream.tell_as(parts, text).await.is_err() {
                tracing::debug!("the server did not take a message about a call");
            }
        }
    })
}

impl fmt::Debug for ServerOfCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerOfCall")
    }
}

impl ResumableCall {
    /// `None`: the request is no call on a session, its client reads no event streams, or the call becomes a
    /// task.
    pub(in crate::downstream) fn of(
        by: &Requester,
        headers: &HeaderMap,
        request: &Request<'_>,
    ) -> Option<Self> {
        // A client on a pipe has no connection that could be cut without the client.
        if by.is_piped || !is_awaited(by, headers, request) {
            return None;
        }
        let params = &request.params;
        let tool = params.get_str("name").unwrap_or_default();
        let rule = Arc::clone(by.rules.for_tool(&tool).0);
        Some(Self {
            session: CallerSession::of(by, headers)?,
            id: request.id.to_owned(),
            began: Instant::now(),
            heartbeat: heartbeat(by, &rule, params).map(ToOwned::to_owned),
            server: ServerOfCall::silent(),
            kept_as: kept_as(by, &rule, request),
            rule,
            primes: primes(headers),
            tool: tool.as_ref().into(),
        })
    }

    /// The largest message that the server may send.
    pub(super) fn bytes_max(&self) -> usize {
        usize::try_from(self.rule.result_bytes_max).unwrap_or(usize::MAX)
    }

    /// Returns the time that the head of the response waits for the first event. A client that is sent progress
    /// while the server is silent gets its stream early.
    pub(in crate::downstream) fn head_patience(&self, by: &Requester, usual: Duration) -> Duration {
        if self.heartbeat.is_some() {
            return usual;
        }
        by.head_patience(usual)
    }

    /// Sets the way to send the server a message on the client's session.
    pub(in crate::downstream) fn at(self, server: ServerOfCall) -> Self {
        Self { server, ..self }
    }
}

/// Returns `true` if a client that reads event streams waits for this call. Otherwise the call becomes a task.
fn is_awaited(by: &Requester, headers: &HeaderMap, request: &Request<'_>) -> bool {
    request.method == "tools/call" && !v2025::wishes(headers, &request.params) && by.reads_events
}

/// `None`: the rule keeps no call that its client gave up.
fn kept_as(by: &Requester, rule: &Rule, request: &Request<'_>) -> Option<Box<KeptAs>> {
    let (whose, window_ms) = (by.gives_up_as()?, rule.give_up_window_ms?);
    let digest = digest(request);
    Some(Box::new(KeptAs {
        client: by.client_of_call(by.session),
        digest,
        claim: CallClaim::of_given_up(&whose, digest, window_ms),
        began: Instant::now(),
        is_all_of_call: is_all_of_call(&request.params),
        progress_token: progress_token(&request.params).map(ToOwned::to_owned),
    }))
}

/// The progress token of a client that is sent progress while the server is silent.
fn heartbeat<'a>(by: &Requester, rule: &Rule, params: &Object<'a>) -> Option<&'a RawValue> {
    let token = progress_token(params)?;
    by.client.heartbeat(rule).value.then_some(token)
}

fn progress_token<'a>(params: &Object<'a>) -> Option<&'a RawValue> {
    params.get_object("_meta")?.get(PROGRESS_TOKEN)
}

/// Returns the notification to a server that a call takes too long.
pub(super) fn cancel_of(id: &RawValue) -> String {
    let mut params = Writer::object();
    params.raw("requestId", id.get());
    params.str("reason", "The call did not end within its time limit");
    envelope::notification("notifications/cancelled", &params.end())
}

/// Returns `true` if the client understands events without data.
pub(super) fn primes(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION);
    // Revisions are dates, so the order of their texts is the order of time.
    version.is_some_and(|version| version.as_bytes() >= FIRST_WITH_PRIMING.as_bytes())
}
