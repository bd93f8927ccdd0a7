//! A request of a legacy client, with everything that its legs to a modern server need.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::session::Session;
use super::translate;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::mcp::error::RpcError;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::runner::{CallSpec, CallTerms};
use crate::task::plan::Plan;
use crate::task::policy::{InputWhen, Rule};
use crate::upstream::{ClientHeaders, Forwarded, Retry, UpstreamRequest};

/// A request with everything that its legs need.
pub(super) struct TranslatedRequest {
    pub(super) proxy: Arc<Proxy>,
    pub(super) by: Requester,
    pub(super) session: Session,
    pub(super) id: Box<RawValue>,
    pub(super) method: Arc<str>,
    pub(super) params: Arc<str>,
    arguments: Option<Box<RawValue>>,
    name: Option<Arc<str>>,
    pub(super) param_headers: ClientHeaders,
    /// The headers that the server receives.
    pub(super) from: Forwarded,
    progress_token: Option<Box<RawValue>>,
    pub(super) terms: CallTerms,
    /// The edits of raincheck to the answer.
    pub(super) edit: Option<AnswerEdit>,
    /// When the call fails, whatever it waits for.
    pub(super) deadline: Instant,
    /// When its client is given a ticket in place of the answer.
    pub(super) patience_ends: Option<Instant>,
}

impl TranslatedRequest {
    pub(super) fn new(
        proxy: &Arc<Proxy>,
        (by, headers): (&Requester, &HeaderMap),
        session: Session,
        request: &Request<'_>,
        terms: CallTerms,
    ) -> Result<Self, RpcError> {
        let named = match &*request.method {
            "tools/call" | "prompts/get" => Some("name"),
            "resources/read" => Some("uri"),
            _ => None,
        };
        let name = match named {
            None => None,
            Some(key) => Some(request.params.get_str(key).ok_or_else(|| {
                RpcError::invalid_params(format!("Invalid params: {key} must be a string"))
            })?),
        };
        let meta = request.params.get_object("_meta").unwrap_or_default();
        let longest = Duration::from_millis(terms.rule.max_duration_ms);
        Ok(Self {
            id: request.id.to_owned(),
            method: request.method.as_ref().into(),
            params: translate::params(&request.params, &session.entry).into(),
            arguments: request.params.get("arguments").map(ToOwned::to_owned),
            name: name.as_deref().map(Into::into),
            param_headers: [].into(),
            from: proxy.forwarded(by, headers),
            progress_token: meta.get("progressToken").map(ToOwned::to_owned),
            edit: None,
            deadline: Instant::now() + longest,
            patience_ends: patience_of(&terms).map(|patience| Instant::now() + patience),
            terms,
            proxy: Arc::clone(proxy),
            by: by.clone(),
            session,
        })
    }

    pub(super) fn edited(self, edit: Option<AnswerEdit>) -> Self {
        Self { edit, ..self }
    }

    /// Returns `true` if the call is a task from the start.
    pub(super) fn is_task(&self) -> bool {
        matches!(self.terms.plan, Plan::Always { .. })
    }

    /// Returns `true` if other requests may join the call.
    pub(super) fn is_joined(&self) -> bool {
        self.terms.claim.is_some()
    }

    /// The request as one call that has a record.
    pub(super) async fn whole(mut self) -> CallSpec {
        self.param_headers = self.mirrored().await;
        let mut call = self.call(None);
        // The record has the whole time from its beginning.
        call.terms.rule.max_duration_ms = self.terms.rule.max_duration_ms;
        call.outgoing.wants_progress = true;
        call
    }

    /// `Mcp-Param-*`, which a legacy client knows nothing of.
    pub(super) async fn mirrored(&self) -> ClientHeaders {
        let Some(name) = self.name.as_deref().filter(|_| self.is_call()) else {
            return [].into();
        };
        let capabilities = self.session.entry.capabilities.get();
        let tools = tools::listed(&self.proxy, &self.by, capabilities).await;
        // Without the list the server may refuse the call, and says why.
        let Some(tool) = tools.as_ref().and_then(|tools| tools.get(name)) else {
            return [].into();
        };
        params::mirrored(tool, self.arguments.as_deref())
            .filter_map(|(name, value)| {
                let name = HeaderName::try_from(name).ok()?;
                Some((name, HeaderValue::try_from(value).ok()?))
            })
            .collect()
    }

    pub(super) fn is_call(&self) -> bool {
        &*self.method == "tools/call"
    }

    fn capabilities(&self) -> Arc<str> {
        self.session.entry.capabilities.get().into()
    }

    /// Only these may be answered with a question (2026-07-28, Multi Round-Trip Requests).
    pub(super) fn may_be_asked(&self) -> bool {
        self.is_call() || matches!(&*self.method, "prompts/get" | "resources/read")
    }

    pub(super) fn call(&self, retry: Option<Retry>) -> CallSpec {
        let log_level = translate::log_level(&self.session.entry);
        let (params, retry) = match (self.patience_ends, retry) {
            // A call that may become a task is stored with the answers so far in its params.
            (Some(_), Some(retry)) => (translate::retried(&self.params, &retry).into(), None),
            (_, retry) => (Arc::clone(&self.params), retry),
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let terms = CallTerms {
            plan: self.patience_ends.map_or(self.terms.plan, until),
            rule: Rule {
                max_duration_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                ..self.terms.rule.clone()
            },
            ..self.terms.clone()
        };
        let caller = *self.session.caller.as_bytes();
        let mut outgoing = UpstreamRequest::new(caller, Arc::clone(&self.method), params)
            .declaring(self.capabilities())
            .forwarding(self.from.clone())
            .described_by(self.name.clone(), Arc::clone(&self.param_headers))
            .with_progress(self.progress_token.is_some() || self.patience_ends.is_some());
        outgoing.log_level = Some(log_level.into());
        outgoing.retry = retry;
        let client = self.by.client_of_call(None);
        CallSpec::of(client, terms, outgoing, self.progress_token.as_deref())
    }
}

/// Returns the time after which the client gets a ticket. `None`: it waits however long the call takes.
fn patience_of(terms: &CallTerms) -> Option<Duration> {
    match terms.plan {
        Plan::Auto { window_ms, .. } => Some(Duration::from_millis(window_ms)),
        Plan::Held | Plan::Always { .. } | Plan::Refuse => None,
    }
}

/// Returns the plan of a leg that becomes a task at that time.
fn until(patience_ends: Instant) -> Plan {
    let left = patience_ends.saturating_duration_since(Instant::now());
    Plan::Auto {
        window_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        // Questions are put to the client while it waits.
        input: InputWhen::BeforeTask,
    }
}
