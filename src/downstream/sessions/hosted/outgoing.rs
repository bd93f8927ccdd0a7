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
use crate::mcp::meta::PROGRESS_TOKEN;
use crate::mcp::params;
use crate::mcp::request::Request;
use crate::runner::{CallSpec, CallTerms};
use crate::task::plan::Plan;
use crate::upstream::{ClientHeaders, UpstreamRequest};

/// Makes a call of a request. `Err`: the params do not name what the request is about.
pub(super) async fn call_of(
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
    let tool = name.as_deref().filter(|_| request.method == "tools/call");
    let param_headers = match tool {
        Some(tool) => mirrored(proxy, by, session, request, tool).await,
        None => [].into(),
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
        .described_by(name.as_deref().map(Arc::from), param_headers)
        .with_progress(may_be_task || progress_token.is_some());
    outgoing.log_level = Some(translate::log_level(&session.entry).into());
    let client = by.client_of_call(None);
    Ok(CallSpec::of(client, terms, outgoing, progress_token))
}

/// Returns the `Mcp-Param-*` headers of a call, which a legacy client knows nothing of.
async fn mirrored(
    proxy: &Arc<Proxy>,
    by: &Requester,
    session: &Session,
    request: &Request<'_>,
    tool: &str,
) -> ClientHeaders {
    let capabilities = session.entry.capabilities.get();
    let tools = tools::listed(proxy, by, capabilities).await;
    // Without the list the server may refuse the call, and says why.
    let Some(tool) = tools.as_ref().and_then(|tools| tools.get(tool)) else {
        return [].into();
    };
    params::mirrored(tool, request.params.get("arguments"))
        .filter_map(|(name, value)| {
            let name = HeaderName::try_from(name).ok()?;
            Some((name, HeaderValue::try_from(value).ok()?))
        })
        .collect()
}
