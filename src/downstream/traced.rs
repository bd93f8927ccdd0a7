//! Where traces are on: the span of a request, and what the server is told of its trace.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use serde_json::value::RawValue;

use super::inbound::envelope::era_by_headers;
use super::inbound::request::Inbound;
use super::inbound::requester::Piped;
use super::related::forget_length;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::string;
use crate::mcp::trace_context::TraceContext;
use crate::mcp::version::{Era, MODERN};
use crate::telemetry::traces::{RequestSpan, RequestTerms, SpanGuard, Tracing};

/// What another reader could read differently. The message of such a request stays as it is.
const READ: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// What becomes of a message whose trace is known.
pub(super) struct Traced {
    /// The message, with the trace in it. `None`: it stays as it is.
    pub(super) edited: Option<Bytes>,
    /// Ends the span of the request.
    pub(super) span: Option<SpanGuard>,
}

/// Begins the span of a request, and tells the server of its trace. A message that is no request has none.
pub(super) fn begin(parts: &mut Parts, body: &Bytes, message: &Inbound<'_>) -> Traced {
    let (span, context) = match tracing(parts, message) {
        None => {
            return Traced {
                edited: None,
                span: None,
            };
        }
        Some(RequestTracing::LeftOut(context)) => (None, context),
        Some(RequestTracing::Recorded(span)) => {
            let context = span.context();
            parts.extensions.insert(Arc::clone(&span));
            (Some(span), context)
        }
    };
    context.set_headers(&mut parts.headers);
    let text = std::str::from_utf8(body).unwrap_or_default();
    // Where the params are no object, the headers say enough.
    let edited = context.in_read_message(text, message.params());
    let edited = edited.ok().map(Bytes::from);
    if edited.is_some() {
        forget_length(&mut parts.headers);
    }
    Traced {
        edited,
        span: span.map(SpanGuard::new),
    }
}

/// The trace of a request, which its message must name.
enum RequestTracing {
    Recorded(Arc<RequestSpan>),
    LeftOut(TraceContext),
}

/// `None`: the message stays as it is.
fn tracing(parts: &Parts, message: &Inbound<'_>) -> Option<RequestTracing> {
    let members = message.members().filter(|it| !it.is_ambiguous(&READ))?;
    let (method, id) = (members.get_str("method")?, members.get("id")?);
    let params = message.params();
    let parent = TraceContext::of(params, &parts.headers);
    let trace = match Tracing::of(parent.as_ref(), &method) {
        Tracing::Untouched => return None,
        Tracing::LeftOut(context) => return Some(RequestTracing::LeftOut(context)),
        Tracing::Recorded(trace) => trace,
    };
    let name = params
        .filter(|_| matches!(&*method, "tools/call" | "prompts/get"))
        .and_then(|params| params.get_str("name"));
    let said = parts.headers.get(PROTOCOL_VERSION);
    let version = match era(parts, message) {
        Era::Modern => MODERN,
        Era::Legacy => said.and_then(|said| said.to_str().ok()).unwrap_or_default(),
    };
    let terms = RequestTerms {
        parent,
        method: &method,
        name: name.as_deref(),
        id: &string(id).unwrap_or_else(|| RawValue::get(id).into()),
        version,
        is_piped: parts.extensions.get::<Piped>().is_some(),
    };
    Some(RequestTracing::Recorded(Arc::new(RequestSpan::new(
        trace, terms,
    ))))
}

/// By whose rules the message is read.
pub(super) fn era(parts: &Parts, message: &Inbound<'_>) -> Era {
    era_by_headers(&parts.headers).unwrap_or_else(|| message.era())
}
