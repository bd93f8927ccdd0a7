//! The identity of calls: two calls are the same call by a key of the client's choice, or, where the operator's rule
//! sets so, by being identical. Pure.

use serde_json::value::RawValue;

use super::requester::{KeyHeader, Requester};
use crate::mcp::error::RpcError;
use crate::mcp::input::is_retry;
use crate::mcp::json::{Object, string};
use crate::mcp::meta::{IDEMPOTENCY_KEY, PROGRESS_TOKEN};
use crate::mcp::request::Request;
use crate::runner::claim::CallClaim;
use crate::task::digest::Digest;
use crate::task::policy::{Rule, Rules};

/// The longest key. A longer one is refused.
const KEY_BYTES_MAX: usize = 255;

/// The claim of a `tools/call`, under which other requests share the call. Without credentials, only requests of the
/// same legacy session share it. Cheap where there is none.
pub(in crate::downstream) fn claim_of(
    request: &Request<'_>,
    key_in_meta: Option<&RawValue>,
    by: &Requester,
    rule: &Rule,
) -> Result<Option<CallClaim>, RpcError> {
    if let Some(key) = key(key_in_meta, &by.idempotency_key)? {
        return Ok(Some(CallClaim::of_key(&by.caller, &key, digest(request))));
    }
    let Some(window_ms) = rule.attach_window_ms else {
        return Ok(None);
    };
    let whose = by.repeats_as().filter(|_| !is_retry(&request.params));
    Ok(whose.map(|whose| CallClaim::of_call(&whose, digest(request), window_ms)))
}

/// The claim of a `tools/call` by which its client collects the call, if it gave the same call up before. `None`: no such
/// call is kept.
pub(in crate::downstream) fn given_up_claim(
    request: &Request<'_>,
    by: &Requester,
) -> Option<CallClaim> {
    given_up_claim_of(&request.params, &by.gives_up_as()?, &by.rules)
}

/// The same for a `tools/call` with these params, of a client that is known as `whose`.
pub(in crate::downstream) fn given_up_claim_of(
    params: &Object<'_>,
    whose: &[u8; 16],
    rules: &Rules,
) -> Option<CallClaim> {
    let name = params.get_str("name")?;
    let window_ms = rules.for_tool(&name).0.give_up_window_ms?;
    if is_retry(params) {
        return None;
    }
    let digest = Digest::of_call("tools/call", Some(&name), params.get("arguments"));
    Some(CallClaim::of_given_up(whose, digest, window_ms))
}

/// Returns `true` if the tool and the arguments are all that a client says of a `tools/call` with these params. What else is in
/// `_meta` may be about one of several users.
pub(in crate::downstream) fn is_all_of_call(params: &Object<'_>) -> bool {
    let Some(meta) = params.get("_meta") else {
        return true;
    };
    let says_nothing = |key: &str| [PROGRESS_TOKEN, "traceparent", "tracestate"].contains(&key);
    Object::parse(meta.get()).is_ok_and(|meta| meta.iter().all(|(key, _)| says_nothing(key)))
}

/// Returns `true` if the client gave the call a key, valid or not.
pub(in crate::downstream) fn has_key(key_in_meta: Option<&RawValue>, by: &Requester) -> bool {
    by.idempotency_key != KeyHeader::Absent || key_in_meta.is_some()
}

/// Returns the key in the `_meta` of a legacy request, valid or not.
pub(in crate::downstream) fn key_in_meta<'a>(request: &Request<'a>) -> Option<&'a RawValue> {
    request.params.get_object("_meta")?.get(IDEMPOTENCY_KEY)
}

/// Returns the digest of the parts that a retry must repeat: the method, and its name and arguments.
pub(in crate::downstream) fn digest(request: &Request<'_>) -> Digest {
    let arguments = request.params.get("arguments");
    Digest::of_call(&request.method, request.name().as_deref(), arguments)
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
