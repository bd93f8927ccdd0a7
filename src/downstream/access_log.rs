//! The access log: a line for each message of a client, if the operator wants it.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::{HeaderMap, Response};
use tokio::time::Instant;

use super::body::Body;
use super::inbound::request::Inbound;
use super::inbound::requester::Requester;
use super::proxy::Proxy;
use crate::auth::identity::Identity;
use crate::mcp::json::Object;
use crate::mcp::trace_context::ToldTrace;
use crate::mcp::trace_id::TraceId;
use crate::task::id::{Caller, TaskId};
use crate::telemetry::log::{AccessRecord, are_requests_logged};

/// The status in the line of a message whose client went away before the answer began, as nginx logs it. No client gets this
/// status.
const CLIENT_WENT_AWAY: u16 = 499;

/// The longest answer in which the id of a new task is looked for.
const CREATED_BYTES_MAX: usize = 4096;

/// A message that is not answered yet. Dropped without an answer, it was left by its client.
pub(super) struct Accessed<'m> {
    method: Cow<'m, str>,
    name: Cow<'m, str>,
    client: Option<Arc<Identity>>,
    caller: Caller,
    trace: Option<TraceId>,
    /// The task that the message names, or that its call became.
    task: Option<TaskId>,
    began: Instant,
    status: u16,
}

impl<'m> Accessed<'m> {
    /// `None`: there is no access log.
    pub(super) fn begin(
        proxy: &Proxy,
        by: &Requester,
        headers: &HeaderMap,
        message: &Inbound<'m>,
    ) -> Option<Self> {
        // The level of the log may leave these lines out. Then no text of the message is looked at.
        if !proxy.live.has_access_log() || !are_requests_logged() {
            return None;
        }
        let method = message.method().cloned();
        let name = message.params().and_then(|it| it.get_str("name"));
        let task = message.params().and_then(|it| it.get_str("taskId"));
        let recorded = by.span.as_ref().map(|span| span.context().trace);
        let told = || Some(ToldTrace::of(message.meta(), headers).context?.trace);
        Some(Self {
            caller: by.caller,
            // Where raincheck records no span, the client's own trace id still joins this line to the client's traces.
            trace: recorded.or_else(told),
            task: task.and_then(|id| TaskId::parse(&id)),
            method: method.unwrap_or_default(),
            name: name.unwrap_or_default(),
            client: by.identity.clone(),
            began: Instant::now(),
            status: CLIENT_WENT_AWAY,
        })
    }

    /// The answer begins: the line is written now.
    pub(super) fn end(mut self, response: &Response<Body>) {
        self.status = response.status().as_u16();
        if self.method == "tools/call" {
            // MCP has no `taskId` in the params of a call, so one that a client puts there must not stay in the line.
            self.task = created(response.body());
        }
    }
}

/// The task that an answer of raincheck's own announces.
fn created(body: &Body) -> Option<TaskId> {
    let Body::Ready { bytes, .. } = body else {
        return None;
    };
    let bytes = bytes.as_ref().filter(|it| it.len() <= CREATED_BYTES_MAX)?;
    let result = Object::parse(std::str::from_utf8(bytes).ok()?).ok()?;
    let result = result.get_object("result")?;
    // The task of 2025-11-25 is an object of its own.
    let id = match result.get_object("task") {
        Some(task) => task.get_str("taskId"),
        None => result.get_str("taskId"),
    };
    TaskId::parse(&id?)
}

impl Drop for Accessed<'_> {
    fn drop(&mut self) {
        let client = self.client.as_ref();
        let client = client.and_then(|client| client.label.as_deref());
        let trace = self.trace.map(|trace| trace.to_string());
        let task = self.task.map(|task| task.short() + "..");
        let line = AccessRecord {
            method: &self.method,
            name: &self.name,
            status: self.status,
            took: Instant::now().saturating_duration_since(self.began),
            client: client.unwrap_or_default(),
            caller_hash: &self.caller.short(),
            trace: trace.as_deref().unwrap_or_default(),
            task: task.as_deref().unwrap_or_default(),
        };
        line.write();
    }
}
