//! Which calls are the same call: by a key of the client's choice, or, where the operator says so,
//! by being identical.

use hyper::header::HeaderName;
use hyper::{HeaderMap, Response};

use super::auth::is_somebody;
use super::body::Body;
use super::call::{self, Asked};
use super::intercept::Modern;
use super::reply::Rpc;
use super::tasks::Shared;
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, set, string};
use crate::mcp::meta::IDEMPOTENCY_KEY;
use crate::runner::claim::{Claim, NotClaimed};
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule};

/// A longer key is refused.
const KEY_BYTES_MAX: usize = 255;

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// What this request stands for beside itself, if anything: a `tools/call` may.
pub(super) fn of(
    modern: &Modern<'_>,
    headers: &HeaderMap,
    caller: &Caller,
    rule: &Rule,
) -> Result<Option<Claim>, RpcError> {
    if modern.request.method != "tools/call" {
        return Ok(None);
    }
    let digest = || call::digest(&modern.request);
    if let Some(key) = key(modern, headers)? {
        return Ok(Some(Claim::of_key(caller, &key, digest())));
    }
    let params = &modern.request.params;
    // A retry brings answers: it is another call than the one that was asked.
    let is_retry = params.contains("requestState") || params.contains("inputResponses");
    // Callers without a name are one caller, whose calls are none of each other's business.
    Ok(rule
        .attach_window_ms
        .filter(|_| is_somebody(headers) && !is_retry)
        .map(|window_ms| Claim::of_call(caller, digest(), window_ms)))
}

/// Carries the call that the claim stands for, or joins it, and answers as it goes.
pub(super) async fn carry(
    front: &Shared,
    asked: &Asked<'_>,
    claim: Claim,
    plan: Plan,
    rule: Rule,
) -> Response<Body> {
    if let Some(response) = call::come_back(front, asked, &rule).await {
        return response;
    }
    let id = asked.modern.request.id;
    let heartbeat = call::heartbeat(asked.modern, &rule);
    let mut call = call::call(asked, plan, rule);
    // Whoever joins it may ask for progress.
    call.outgoing.wants_progress = true;
    if let Some(params) = without_key(&call.outgoing.params) {
        call.outgoing.params = params.into();
    }
    match front.runner.call_once(claim, call).await {
        Ok(client) => call::respond(id.to_owned(), client, heartbeat).await,
        Err(NotClaimed::OtherCall) => Rpc::error(id.get(), &other_call()).into_response(),
        Err(NotClaimed::StoreUnavailable) => Rpc::store_unavailable(id.get()).into_response(),
        Err(NotClaimed::NotBegun(why)) => Rpc::not_begun(id.get(), why.reason()).into_response(),
    }
}

fn key(modern: &Modern<'_>, headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let refused = |text: &'static str| Err(RpcError::invalid_params(text));
    let in_meta = match modern.meta.idempotency_key.map(string) {
        None => None,
        Some(Some(key)) => Some(key.into_owned()),
        Some(None) => {
            return refused("Invalid params: io.raincheck/idempotencyKey must be a string");
        }
    };
    let mut values = headers.get_all(HEADER).iter();
    let in_header = match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => None,
        (Some(Ok(value)), None) => Some(unquoted(value.trim_matches([' ', '\t'])).to_owned()),
        (Some(_), _) => return refused("Invalid params: the Idempotency-Key header is malformed"),
    };
    if in_meta.is_some() && in_header.is_some() && in_meta != in_header {
        return refused("Invalid params: the Idempotency-Key header differs from _meta");
    }
    let key = in_meta.or(in_header);
    if key
        .as_ref()
        .is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX)
    {
        return refused("Invalid params: an idempotency key has 1 to 255 bytes");
    }
    Ok(key)
}

/// The header is a string of HTTP's structured fields, quotes and all; most clients write it bare.
fn unquoted(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .filter(|inside| !inside.contains(['"', '\\']))
        .unwrap_or(value)
}

/// The params without the key, which is for us; `None` where there is none in them.
fn without_key(params: &str) -> Option<String> {
    let meta = Object::parse(params).ok()?.get_object("_meta")?;
    if !meta.contains(IDEMPOTENCY_KEY) {
        return None;
    }
    let rest = meta.render_filtered(|name| name != IDEMPOTENCY_KEY);
    set(params, "_meta", &rest).ok()
}

fn other_call() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: this idempotency key stands for a call with another tool or other \
         arguments",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_quotes_is_the_key() {
        assert_eq!(unquoted("\"a b\""), "a b");
        for bare in ["a", "\"", "\"a", "\"a\\\"b\"", ""] {
            assert_eq!(unquoted(bare), bare);
        }
    }

    #[test]
    fn the_server_does_not_see_the_key() {
        let params = r#"{"name":"t","_meta":{"a":1.10,"io.raincheck/idempotencyKey":"k"}}"#;
        assert_eq!(
            without_key(params).unwrap(),
            r#"{"name":"t","_meta":{"a":1.10}}"#
        );
        assert_eq!(without_key(r#"{"name":"t","_meta":{}}"#), None);
    }
}
