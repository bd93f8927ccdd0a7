//! A request of a legacy client, with everything that its legs to a modern server need.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::patience::CallPatience;
use super::session::Session;
use super::translate;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::idempotency;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tasks::v2025::OutgoingCall;
use crate::downstream::tools;
use crate::mcp::error::{RpcError, code};
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;
use crate::mcp::version::Era;
use crate::runner::{Announce, CallSpec};
use crate::task::plan::{Plan, plan};
use crate::task::policy::Rule;
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
    pub(super) rule: Rule,
    /// The edits of raincheck to the answer.
    pub(super) edit: Option<AnswerEdit>,
    /// When the call fails, whatever it waits for.
    pub(super) deadline: Instant,
    /// When its client is given a ticket in place of the answer.
    pub(super) patience: Option<CallPatience>,
    /// The server calls the tool safe to repeat, and is believed.
    repeatable: bool,
}

impl TranslatedRequest {
    pub(super) fn new(
        proxy: &Arc<Proxy>,
        (by, headers): (&Requester, &HeaderMap),
        session: Session,
        request: &Request<'_>,
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
        let is_call = request.method == "tools/call";
        let tool = name.as_deref().filter(|_| is_call).unwrap_or_default();
        let rule = by.rules.for_tool(tool).0.clone();
        let is_task = session.has_tasks() && Wish::is_in(&request.params);
        if is_call && !is_task && plan(&rule, false, false) == Plan::Refuse {
            // Revision 2025-11-25 has this error for a tool that runs only as a task.
            return Err(RpcError::new(
                code::METHOD_NOT_FOUND,
                "This tool runs only as a task, which this client does not ask for",
            ));
        }
        let meta = request.params.get_object("_meta").unwrap_or_default();
        let longest = Duration::from_millis(rule.max_duration_ms);
        Ok(Self {
            id: request.id.to_owned(),
            method: request.method.as_ref().into(),
            params: translate::params(&request.params, &session.entry).into(),
            arguments: request.params.get("arguments").map(ToOwned::to_owned),
            name: name.as_deref().map(Into::into),
            param_headers: [].into(),
            from: proxy.forwarded(by, headers),
            progress_token: meta.get("progressToken").map(ToOwned::to_owned),
            rule,
            edit: None,
            deadline: Instant::now() + longest,
            patience: None,
            repeatable: false,
            proxy: Arc::clone(proxy),
            by: by.clone(),
            session,
        })
    }

    pub(super) fn edited(self, edit: Option<AnswerEdit>) -> Self {
        Self { edit, ..self }
    }

    /// `ticket`: what the client gets when its patience is over.
    pub(super) fn with(self, ticket: Option<Announce>, repeatable: bool) -> Self {
        Self {
            patience: ticket
                .and_then(|ticket| CallPatience::of(&self.rule, self.by.client, ticket)),
            repeatable,
            ..self
        }
    }

    /// The request as a call that becomes a task.
    pub(super) async fn sent(mut self) -> OutgoingCall {
        self.param_headers = self.mirrored().await;
        OutgoingCall {
            era: Era::Modern,
            outgoing: self.call(None).outgoing.with_progress(true),
        }
    }

    /// The request as a call that other requests may join.
    pub(super) async fn joined(mut self) -> CallSpec {
        self.param_headers = self.mirrored().await;
        let mut call = self.call(None);
        call.outgoing.wants_progress = true;
        idempotency::hide_key(&mut call.outgoing);
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
        let (params, retry) = match (&self.patience, retry) {
            // A call that may become a task is stored with the answers so far in its params.
            (Some(_), Some(retry)) => (translate::retried(&self.params, &retry).into(), None),
            (_, retry) => (Arc::clone(&self.params), retry),
        };
        let (plan, announce) = match &self.patience {
            Some(patience) => (patience.plan(), patience.announce.clone()),
            None => (Plan::Held, Announce::Task),
        };
        let left = self.deadline.saturating_duration_since(Instant::now());
        let caller = *self.session.caller.as_bytes();
        let answer_patience = self.rule.input_timeout_ms.map(Duration::from_millis);
        let mut outgoing = UpstreamRequest::new(caller, Arc::clone(&self.method), params)
            .declaring(self.capabilities())
            .forwarding(self.from.clone())
            .described_by(self.name.clone(), Arc::clone(&self.param_headers))
            .with_progress(self.progress_token.is_some() || self.patience.is_some())
            .for_call(answer_patience, false);
        outgoing.log_level = Some(log_level.into());
        outgoing.retry = retry;
        CallSpec {
            caller: self.session.caller,
            label: self.by.label(),
            era: Some(Era::Modern),
            client_era: Era::Legacy,
            outgoing,
            rule: Rule {
                max_duration_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
                ..self.rule.clone()
            },
            plan,
            progress_token: self.progress_token.clone(),
            announce,
            repeatable: self.repeatable,
            listed: self.by.list,
            session: None,
            related: self.by.related.clone(),
            span: self.by.span.clone(),
        }
    }
}
