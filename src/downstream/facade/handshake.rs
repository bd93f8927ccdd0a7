//! `initialize` of a legacy client, answered from what the modern server says of itself.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Response;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use serde_json::value::RawValue;

use super::super::body::Body;
use super::super::dialect::Edit;
use super::super::legacy::words::Request;
use super::super::reply::Rpc;
use super::super::tasks::Shared;
use super::session::{Entry, Session};
use super::words;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::{is_object, raw};
use crate::runner::seat::Answer;
use crate::upstream::UpstreamError;
use crate::upstream::wrapped::DiscoverError;

/// How long the server may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a client says of itself goes with each of its requests; more than this is refused.
const DECLARED_BYTES_MAX: usize = 16 * 1024;

pub(super) async fn answer(front: &Shared, parts: &Parts, request: &Request<'_>) -> Response<Body> {
    match begin(front, parts, request).await {
        Ok((session, result)) => {
            let mut rpc = Rpc::result(request.id.get(), &result);
            if let Some(edit) = Edit::of(front, &parts.headers, request) {
                rpc.json = edit.apply(rpc.json);
            }
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
        error: words::error("initialize", error.error),
        ..error
    };
    Rpc::answer(id, Answer::Error(error))
}

async fn begin(
    front: &Shared,
    parts: &Parts,
    request: &Request<'_>,
) -> Result<(Session, String), Rpc> {
    let id = request.id.get();
    let Some(offered) = request.params.get_str("protocolVersion") else {
        let error = RpcError::invalid_params("Invalid params: protocolVersion must be a string");
        return Err(Rpc::error(id, &error));
    };
    let version = words::agreed_version(&offered);
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
    let capabilities = declared.map_or_else(|| "{}".to_owned(), words::client_capabilities);

    let caller = front.callers.of(&parts.headers);
    let credentials = front.credentials(&parts.headers);
    let discovering = front
        .upstream
        .discover(*caller.as_bytes(), credentials, &capabilities);
    let discovered = tokio::time::timeout(PATIENCE, discovering).await;
    // Slower than its clients wait: what it said to the same caller before is likely to hold.
    let discovered = discovered.or_else(|late| {
        let known = front.upstream.last_discovered(*caller.as_bytes());
        known.map(Ok).ok_or(late)
    });
    let discovered = match discovered {
        Ok(Ok(discovered)) => discovered,
        Ok(Err(DiscoverError::Unauthorized(error))) => {
            return Err(Rpc::answer(id, Answer::Error(error)));
        }
        Ok(Err(DiscoverError::Refused(error))) => return Err(refused(id, error)),
        Ok(Err(DiscoverError::Failed(failure))) => return Err(Rpc::failure(id, failure)),
        Err(_elapsed) => {
            let failure = Failure::new(Reason::UpstreamUnreachable, SideEffect::None);
            return Err(Rpc::failure(id, failure));
        }
    };
    let result = words::initialized(
        version,
        &discovered.capabilities,
        discovered.server_info.as_deref(),
        discovered.instructions.as_deref(),
    );
    let entry = Entry {
        version: version.into(),
        capabilities: raw(capabilities).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        client_info: info.map(ToOwned::to_owned),
        log_level: None,
        uris: BTreeSet::new(),
        renewed_ms: 0,
    };
    match Session::begin(front, caller, entry).await {
        Ok(session) => Ok((session, result)),
        Err(error) => {
            tracing::warn!(%error, "a session could not be begun");
            Err(Rpc::store_unavailable(id))
        }
    }
}
