//! The identity of calls: two calls are the same call by a key of the client's choice, or, where the operator's rule
//! sets so, by being identical. Pure.

use serde_json::value::RawValue;

use super::request::Modern;
use super::requester::{KeyHeader, Requester};
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, set, string};
use crate::mcp::meta::IDEMPOTENCY_KEY;
use crate::mcp::request::Request;
use crate::runner::claim::CallClaim;
use crate::task::digest::Digest;
use crate::task::policy::Rule;
use crate::upstream::UpstreamRequest;

/// The longest key. A longer one is refused.
const KEY_BYTES_MAX: usize = 255;

/// The claim of a modern client's `tools/call`, which other requests may share.
pub(in crate::downstream) fn claim_of(
    modern: &Modern<'_>,
    by: &Requester,
    rule: &Rule,
) -> Result<Option<CallClaim>, RpcError> {
    let request = &modern.request;
    if let Some(key) = key(modern.meta.idempotency_key, &by.idempotency_key)? {
        return Ok(Some(CallClaim::of_key(&by.caller, &key, digest(request))));
    }
    // A retry brings answers, and so is another call than the one that asked.
    let is_retry =
        request.params.contains("requestState") || request.params.contains("inputResponses");
    // All clients without credentials are one caller, and must not see each other's calls.
    let window_ms = rule
        .attach_window_ms
        .filter(|_| by.has_credentials && !is_retry);
    let claim = |window_ms| CallClaim::of_call(by.caller.as_bytes(), digest(request), window_ms);
    Ok(window_ms.map(claim))
}

/// The claim of a legacy client's `tools/call`, which other requests may share. Without credentials, only requests of
/// the same session share it.
pub(in crate::downstream) fn claim_of_legacy(
    request: &Request<'_>,
    by: &Requester,
    rule: &Rule,
) -> Result<Option<CallClaim>, RpcError> {
    if let Some(key) = key(key_in_meta(request), &by.idempotency_key)? {
        return Ok(Some(CallClaim::of_key(&by.caller, &key, digest(request))));
    }
    let whose = match &by.session {
        _ if by.has_credentials => Some(by.caller.as_bytes()),
        Some(session) => Some(session.as_bytes()),
        None => None,
    };
    let claim = |(window_ms, whose)| CallClaim::of_call(whose, digest(request), window_ms);
    Ok(rule.attach_window_ms.zip(whose).map(claim))
}

/// Returns `true` if a legacy call may have a claim. Every passing call is checked, so this must be cheap.
pub(in crate::downstream) fn may_claim(request: &Request<'_>, by: &Requester, rule: &Rule) -> bool {
    rule.attach_window_ms.is_some() || has_key(request, by)
}

/// Returns `true` if the client gave the call a key, valid or not.
pub(in crate::downstream) fn has_key(request: &Request<'_>, by: &Requester) -> bool {
    by.idempotency_key != KeyHeader::Absent || key_in_meta(request).is_some()
}

fn key_in_meta<'a>(request: &Request<'a>) -> Option<&'a RawValue> {
    request.params.get_object("_meta")?.get(IDEMPOTENCY_KEY)
}

/// Returns the digest of the parts that a retry must repeat: the method, and its name and arguments.
pub(in crate::downstream) fn digest(request: &Request<'_>) -> Digest {
    let arguments = request.params.get("arguments");
    Digest::of_call(&request.method, request.name().as_deref(), arguments)
}

/// Takes the key out of what goes to the server: the key is for raincheck.
pub(in crate::downstream) fn hide_key(outgoing: &mut UpstreamRequest) {
    if let Some(params) = without_key(&outgoing.params) {
        outgoing.params = params.into();
    }
}

fn key(in_meta: Option<&RawValue>, in_header: &KeyHeader) -> Result<Option<String>, RpcError> {
    let refused = |text: &'static str| Err(RpcError::invalid_params(text));
    let in_meta = match in_meta.map(string) {
        None => None,
        Some(Some(key)) => Some(key.into_owned()),
        Some(None) => {
            return refused("Invalid params: io.raincheck/idempotencyKey must be a string");
        }
    };
    let in_header = match in_header {
        KeyHeader::Absent => None,
        KeyHeader::Key(key) => Some(String::from(&**key)),
        KeyHeader::Malformed => {
            return refused("Invalid params: the Idempotency-Key header is malformed");
        }
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

/// `None`: there is no key in the params.
fn without_key(params: &str) -> Option<String> {
    let meta = Object::parse(params).ok()?.get_object("_meta")?;
    if !meta.contains(IDEMPOTENCY_KEY) {
        return None;
    }
    let rest = meta.render_filtered(|name| name != IDEMPOTENCY_KEY);
    set(params, "_meta", &rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
