//! Where traces are on: the span of a request, and what the server is told of its trace.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;
use hyper::http::request::Parts;
use serde_json::value::RawValue;

use super::body::Body;
use super::dispatch::answered;
use super::inbound::envelope::era_by_headers;
use super::inbound::request::Inbound;
use super::inbound::requester::Piped;
use super::proxy::Proxy;
use super::related::forget_length;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::string;
use crate::mcp::trace_context::TraceContext;
use crate::mcp::version::{Era, MODERN};
use crate::telemetry::traces::{RequestTerms, SpanGuard, Tracing};

/// What another reader could read differently. The message of such a request stays as it is.
const READ: [&str; 4] = ["jsonrpc", "id", "method", "params"];

/// Answers a message, and tells its span. A message that is no request has none.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    mut parts: Box<Parts>,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    let (span, context) = match tracing(&parts, &message) {
        Tracing::Untouched => return answered(proxy, parts, body, message, None).await,
        Tracing::LeftOut(context) => (None, context),
        Tracing::Recorded(span) => {
            let context = span.context();
            (Some(span), context)
        }
    };
    let guard = span.clone().map(SpanGuard::new);
    if let Some(span) = span {
        parts.extensions.insert(span);
    }
    context.set_headers(&mut parts.headers);
    let text = std::str::from_utf8(body).unwrap_or_default();
    match context.in_message(text) {
        Ok(edited) => {
            drop(message);
            forget_length(&mut parts.headers);
            let edited = Bytes::from(edited);
            let message = Inbound::read(&edited);
            answered(proxy, parts, &edited, message, guard).await
        }
        // The params are no object: the headers say enough.
        Err(_) => answered(proxy, parts, body, message, guard).await,
    }
}

fn tracing(parts: &Parts, message: &Inbound<'_>) -> Tracing {
    let Some(members) = message.members().filter(|it| !it.is_ambiguous(&READ)) else {
        return Tracing::Untouched;
    };
    let (Some(method), Some(id)) = (members.get_str("method"), members.get("id")) else {
        return Tracing::Untouched;
    };
    let params = message.params();
    let name = params
        .filter(|_| matches!(&*method, "tools/call" | "prompts/get"))
        .and_then(|params| params.get_str("name"));
    let era = era_by_headers(&parts.headers).unwrap_or_else(|| message.era());
    let said = parts.headers.get(PROTOCOL_VERSION);
    let version = match era {
        Era::Modern => MODERN,
        Era::Legacy => said.and_then(|said| said.to_str().ok()).unwrap_or_default(),
    };
    Tracing::of(RequestTerms {
        parent: TraceContext::of(params, &parts.headers),
        method: &method,
        name: name.as_deref(),
        id: &string(id).unwrap_or_else(|| RawValue::get(id).into()),
        version,
        is_piped: parts.extensions.get::<Piped>().is_some(),
    })
}
