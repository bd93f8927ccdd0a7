//! `initialize` of a legacy client, answered from the modern server's description of itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;

use super::session::{BeginError, Session, SessionEntry};
use super::translate;
use crate::downstream::body::Body;
use crate::downstream::edited::AnswerEdit;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::{Object, is_object, raw};
use crate::mcp::request::Request;
use crate::runner::responder::CallAnswer;
use crate::telemetry::repeats::OF_OUTAGE;
use crate::upstream::UpstreamError;
use crate::upstream::wrapped::DiscoverError;

/// Upper bound of the time in which the server describes itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// The largest `capabilities` or `clientInfo` of a client. Both go to the server with each request.
const DECLARED_BYTES_MAX: usize = 16 * 1024;

/// The largest `clientInfo` that is remembered whole.
const INFO_BYTES_MAX: usize = 2 * 1024;

pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
) -> Response<Body> {
    match begin(proxy, by, request).await {
        Ok((session, result)) => {
            let mut rpc = Rpc::result(request.id.get(), &result);
            let edit = AnswerEdit::of_initialize(proxy, by, request);
            rpc.json = edit.apply(rpc.json).await;
            let mut response = rpc.into_response();
            if let Ok(id) = HeaderValue::try_from(&*session.id) {
                response.headers_mut().insert(SESSION_ID, id);
            }
            response
        }
        Err(refused) => refused.on_session().into_response(),
    }
}

fn refused(id: &str, error: UpstreamError) -> Rpc {
    let error = UpstreamError {
        error: translate::error("initialize", error.error),
        ..error
    };
    Rpc::answer(id, CallAnswer::Error(error))
}

async fn begin(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
) -> Result<(Session, String), Rpc> {
    let id = request.id.get();
    let Some(offered) = request.params.get_str("protocolVersion") else {
        let error = RpcError::invalid_params("Invalid params: protocolVersion must be a string");
        return Err(Rpc::error(id, &error));
    };
    let version = translate::agreed_version(&offered);
    let declared = request
        .params
        .get("capabilities")
        .filter(|raw| is_object(raw));
    let info = request
        .params
        .get("clientInfo")
        .filter(|raw| is_object(raw));
    let too_long = |raw: &&RawValue| raw.get().len() > DECLARED_BYTES_MAX;
    if declared.iter().chain(&info).any(too_long) {
        let error = RpcError::invalid_params(
            "Invalid params: capabilities and clientInfo are limited to 16 KiB each",
        );
        return Err(Rpc::error(id, &error));
    }
    let capabilities = declared.map_or_else(|| "{}".to_owned(), translate::client_capabilities);

    let caller = by.caller;
    let credentials = by.credentials.clone();
    let discovering = proxy
        .upstream
        .discover(*caller.as_bytes(), credentials, &capabilities);
    let discovered = tokio::time::timeout(PATIENCE, discovering).await;
    // If the server is slower than its clients wait, its last answer to the same caller is likely to hold.
    let discovered = discovered.or_else(|late| {
        let known = proxy.upstream.last_discovered(*caller.as_bytes());
        known.map(Ok).ok_or(late)
    });
    let discovered = match discovered {
        Ok(Ok(discovered)) => discovered,
        Ok(Err(DiscoverError::Unauthorized(error))) => {
            return Err(Rpc::answer(id, CallAnswer::Error(error)));
        }
        Ok(Err(DiscoverError::Refused(error))) => return Err(refused(id, error)),
        Ok(Err(DiscoverError::Failed(failure))) => return Err(Rpc::failure(id, failure)),
        Err(_elapsed) => {
            let failure = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
            return Err(Rpc::failure(id, failure));
        }
    };
    let result = translate::initialized(
        version,
        &discovered.capabilities,
        discovered.server_info.as_deref(),
        discovered.instructions.as_deref(),
    );
    let entry = SessionEntry {
        version: version.into(),
        capabilities: raw(capabilities).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        client_info: info.and_then(kept),
        log_level: None,
        uris: BTreeSet::new(),
        renewed_ms: 0,
        lasts_ms: 0,
        since_ms: 0,
    };
    let begun = Session::begin(proxy, caller, entry).await;
    let session = begun.map_err(|why| not_begun(id, &why))?;
    Ok((session, result))
}

fn not_begun(id: &str, why: &BeginError) -> Rpc {
    match why {
        BeginError::TooMany => Rpc::busy(id),
        BeginError::Store(error) => {
            tracing::warn!(name: OF_OUTAGE, %error, "a session could not be begun");
            Rpc::store_unavailable(id)
        }
    }
}

/// Returns the part of `clientInfo` that is remembered. Icons make it large: then only the names and the version are
/// remembered.
fn kept(info: &RawValue) -> Option<Box<RawValue>> {
    if info.get().len() <= INFO_BYTES_MAX {
        return Some(info.to_owned());
    }
    let names = ["name", "title", "version"];
    let info = Object::parse(info.get()).ok()?;
    let short = info.render_filtered(|key| names.contains(&key));
    let short = Some(short).filter(|short| short.len() <= INFO_BYTES_MAX);
    raw(short?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_icons_keeps_its_name() {
        let kept = |text: String| kept(&raw(text).unwrap()).map(|kept| kept.get().to_owned());
        let small = r#"{"name":"c","version":"1","icons":[]}"#;
        assert_eq!(kept(small.into()).as_deref(), Some(small));
        let icon = "x".repeat(INFO_BYTES_MAX);
        let large = format!(r#"{{"name":"c","icons":["{icon}"],"version":"1"}}"#);
        assert_eq!(
            kept(large).as_deref(),
            Some(r#"{"name":"c","version":"1"}"#)
        );
        assert_eq!(kept(format!(r#"{{"name":"{icon}"}}"#)), None);
    }
}
