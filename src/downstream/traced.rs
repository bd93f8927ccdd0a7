//! Where traces are on: the span of a request, and the trace context that the server receives.

use std::sync::Arc;

use bytes::Bytes;
use hyper::http::request::Parts;
use serde_json::value::RawValue;

use super::inbound::request::Inbound;
use super::inbound::requester::Piped;
use super::related::forget_length;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::string;
use crate::mcp::trace_context::{ToldTrace, TraceContext};
use crate::mcp::version::{Era, MODERN};
use crate::telemetry::traces::{RequestSpan, RequestTerms, Tracing};

/// The changes to a message whose trace is known.
#[derive(Default)]
pub(super) struct Traced {
    /// The message, with the trace in it. `None`: it stays as it is.
    pub(super) edited: Option<Bytes>,
    /// The span of the request.
    pub(super) span: Option<Arc<RequestSpan>>,
}

/// Begins the span of a request, and adds its trace to the message for the server. A message that is no request has
/// none.
pub(super) fn begin(parts: &mut Parts, era: Era, message: &Inbound<'_>) -> Traced {
    let told = ToldTrace::of(message.meta(), &parts.headers);
    let (span, context) = match tracing(parts, era, message, told.context.as_ref()) {
        None => return Traced::default(),
        Some(RequestTracing::LeftOut(context)) => (None, context),
        Some(RequestTracing::Recorded(span)) => {
            let context = span.context();
            (Some(span), context)
        }
    };
    let params = message.params().zip(message.meta());
    let edited = context.put(&told, &mut parts.headers, message.text(), params);
    if edited.is_some() {
        // The trace makes the body longer than the client announced.
        forget_length(&mut parts.headers);
    }
    Traced { edited, span }
}

/// The trace of a request, which its message must name.
enum RequestTracing {
    Recorded(Arc<RequestSpan>),
    LeftOut(TraceContext),
}

/// `None`: the message stays as it is.
fn tracing(
    parts: &Parts,
    era: Era,
    message: &Inbound<'_>,
    parent: Option<&TraceContext>,
) -> Option<RequestTracing> {
    // A message that another reader could read differently stays as it is.
    let id = message.certain_members()?.get("id")?;
    let method = message.method()?;
    let trace = match Tracing::of(parent, method) {
        Tracing::Untouched => return None,
        Tracing::LeftOut(context) => return Some(RequestTracing::LeftOut(context)),
        Tracing::Recorded(trace) => trace,
    };
    let name = message
        .params()
        .filter(|_| matches!(&**method, "tools/call" | "prompts/get"))
        .and_then(|params| params.get_str("name"));
    let terms = RequestTerms {
        parent,
        method,
        name: name.as_deref(),
        id: &string(id).unwrap_or_else(|| RawValue::get(id).into()),
        version: version(parts, era),
        is_piped: parts.extensions.get::<Piped>().is_some(),
    };
    Some(RequestTracing::Recorded(Arc::new(RequestSpan::new(
        trace, terms,
    ))))
}

/// The revision that the request is of.
pub(super) fn version(parts: &Parts, era: Era) -> &str {
    match era {
        Era::Modern => MODERN,
        Era::Legacy => {
            let said = parts.headers.get(PROTOCOL_VERSION);
            said.and_then(|said| said.to_str().ok()).unwrap_or_default()
        }
    }
}
