//! The request to a modern server that a legacy client's request becomes.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::session::Session;
use super::translate;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::downstream::tools;
use crate::mcp::error::RpcError;
use crate::mcp::json::Object;
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::runner::{CallSpec, CallTerms};
use crate::task::plan::Plan;
use crate::upstream::UpstreamRequest;

/// Makes a call of a request, without the headers that [`mirror`] adds. `Err`: the params do not name what the request
/// is about.
pub(super) fn call_of(
    proxy: &Arc<Proxy>,
    (by, headers): (&Requester, &HeaderMap),
    session: &Session,
    request: &Request<'_>,
    terms: CallTerms,
) -> Result<CallSpec, RpcError> {
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
    let caller = *session.caller.as_bytes();
    let params = translate::params(&request.params, &session.entry);
    let meta = request.params.get_object("_meta").unwrap_or_default();
    let progress_token = meta.get(PROGRESS_TOKEN);
    // The status of a task shows progress, even if the client did not ask for it.
    let may_be_task = matches!(terms.plan, Plan::Auto { .. } | Plan::Always { .. });
    let mut outgoing = UpstreamRequest::new(caller, request.method.as_ref(), params)
        .declaring(session.entry.capabilities.get())
        .forwarding(proxy.forwarded(by, headers))
        .described_by(name.as_deref().map(Arc::from), [].into())
        .with_progress(may_be_task || progress_token.is_some());
    outgoing.log_level = Some(translate::log_level(&session.entry).into());
    let client = by.client_of_call(None);
    Ok(CallSpec::of(client, terms, outgoing, progress_token))
}

/// Adds the `Mcp-Param-*` headers to a call of a tool. A legacy client knows nothing of them, and the list of the
/// server's tools, which may have to be read first, says which they are.
pub(super) async fn mirror(proxy: Arc<Proxy>, by: Requester, mut call: CallSpec) -> CallSpec {
    let outgoing = &mut call.outgoing;
    // Only calls of tools have these headers, so no other request has to read the list.
    if &*outgoing.method != "tools/call" {
        return call;
    }
    let tools = tools::listed(&proxy, &by, &outgoing.capabilities).await;
    let name = outgoing.name.as_deref().unwrap_or_default();
    // Without the list the server may refuse the call, and says why.
    if let Some(tool) = tools.as_ref().and_then(|tools| tools.get(name)) {
        let params = Object::parse(&outgoing.params).unwrap_or_default();
        let mirrored = params::mirrored(tool, params.get("arguments"));
        let headers = mirrored.filter_map(|(name, value)| {
            let name = HeaderName::try_from(name).ok()?;
            Some((name, HeaderValue::try_from(value).ok()?))
        });
        outgoing.param_headers = headers.collect();
    }
    call
}
