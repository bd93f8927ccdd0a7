//! The data that a record keeps of the trace of its call, so that the replica that ends the task can report the whole
//! call.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::mcp::trace_context::TraceContext;
use crate::mcp::trace_id::{SpanId, TraceId};

/// The trace of a call that is recorded. All ids are fixed when the call begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTrace {
    pub trace: TraceId,
    /// The span of the whole call.
    pub span: SpanId,
    /// The client's span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// The span of the call at the server: the parent of the server's own spans.
    pub sent: SpanId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<str>>,
    /// The id of the client's request.
    pub request: Box<str>,
    /// The revision that the client speaks.
    pub version: Cow<'static, str>,
    /// When the call went to the server, if that was before its record was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<u64>,
    /// The client is on standard input and output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_piped: bool,
}

impl TaskTrace {
    /// Returns the trace context for the server: its spans are below the span of the call at the server.
    pub fn to_server(&self) -> TraceContext {
        TraceContext {
            trace: self.trace,
            span: self.sent,
            is_sampled: true,
            state: self.state.clone(),
        }
    }
}
