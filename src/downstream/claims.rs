//! Which calls are the same call: by a key of the client's choice, or, where the operator says so,
//! by being identical.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::auth::is_somebody;
use super::body::Body;
use super::call::{self, Asked};
use super::intercept::Modern;
use super::legacy::pushes::SessionKey;
use super::legacy::words::Request as LegacyRequest;
use super::proxy::Shared;
use super::reply::Rpc;
use crate::mcp::error::{RpcError, SideEffect};
use crate::mcp::json::{Object, set, string};
use crate::mcp::meta::IDEMPOTENCY_KEY;
use crate::runner::Call;
use crate::runner::claim::{Claim, NotClaimed};
use crate::runner::seat::Client;
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule};
use crate::upstream::Outgoing;

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
    if let Some(key) = key(modern.meta.idempotency_key, &in_header(headers))? {
        return Ok(Some(Claim::of_key(caller, &key, digest())));
    }
    let params = &modern.request.params;
    // A retry brings answers: it is another call than the one that was asked.
    let is_retry = params.contains("requestState") || params.contains("inputResponses");
    // Callers without a name are one caller, whose calls are none of each other's business.
    Ok(rule
        .attach_window_ms
        .filter(|_| is_somebody(headers) && !is_retry)
        .map(|window_ms| Claim::of_call(caller.as_bytes(), digest(), window_ms)))
}

/// Who makes a legacy call.
pub(super) struct Claimant<'a> {
    pub(super) caller: &'a Caller,
    pub(super) is_somebody: bool,
    /// `None`: nothing tells it from other clients of its caller.
    pub(super) session: Option<SessionKey>,
    pub(super) in_header: &'a InHeader,
}

/// Whether a legacy call may stand for anything: what is asked of each that passes.
pub(super) fn may_be(request: &LegacyRequest<'_>, headers: &HeaderMap, rule: &Rule) -> bool {
    rule.attach_window_ms.is_some() || has_key(request, headers)
}

/// Its client gave it a key, right or wrong.
pub(super) fn has_key(request: &LegacyRequest<'_>, headers: &HeaderMap) -> bool {
    let meta = || request.params.get_object("_meta");
    headers.contains_key(HEADER) || meta().is_some_and(|meta| meta.contains(IDEMPOTENCY_KEY))
}

/// The same for a `tools/call` of a legacy client. A caller without a name is one on its session.
pub(super) fn of_legacy(
    request: &LegacyRequest<'_>,
    by: &Claimant<'_>,
    rule: &Rule,
) -> Result<Option<Claim>, RpcError> {
    let meta = request.params.get_object("_meta");
    let in_meta = meta.and_then(|meta| meta.get(IDEMPOTENCY_KEY));
    if let Some(key) = key(in_meta, by.in_header)? {
        return Ok(Some(Claim::of_key(by.caller, &key, request.digest())));
    }
    let whose = match &by.session {
        _ if by.is_somebody => Some(by.caller.as_bytes()),
        Some(session) => Some(session.as_bytes()),
        None => None,
    };
    let claim = |(window_ms, whose)| Claim::of_call(whose, request.digest(), window_ms);
    Ok(rule.attach_window_ms.zip(whose).map(claim))
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
    hide_key(&mut call.outgoing);
    match front.runner.call_once(claim, call).await {
        Ok(client) => {
            let answered = (id.to_owned(), Rpc::call_answer as call::ToRpc);
            call::respond(answered, client, heartbeat, asked.headers).await
        }
        Err(why) => refused(id, &why).into_response(),
    }
}

/// Begins a legacy call, or joins the one that it is.
pub(super) async fn begin(
    front: &Shared,
    claim: Option<Claim>,
    call: Call,
) -> Result<Client, NotClaimed> {
    match claim {
        Some(claim) => front.runner.call_once(claim, call).await,
        None => Ok(front.runner.call(call)?),
    }
}

/// The key is for us.
pub(super) fn hide_key(outgoing: &mut Outgoing) {
    if let Some(params) = without_key(&outgoing.params) {
        outgoing.params = params.into();
    }
}

/// What a client is told whose call could not be claimed.
pub(super) fn refused(id: &RawValue, why: &NotClaimed) -> Rpc {
    match why {
        NotClaimed::OtherCall => Rpc::error(id.get(), &other_call()),
        NotClaimed::StoreUnavailable => Rpc::store_lost(id.get(), SideEffect::None),
        NotClaimed::NotBegun(why) => Rpc::not_begun(id.get(), why.reason()),
    }
}

/// A header that cannot be read.
#[derive(Debug)]
pub(super) struct Malformed;

/// The key that the header of a request says.
pub(super) type InHeader = Result<Option<Box<str>>, Malformed>;

pub(super) fn in_header(headers: &HeaderMap) -> InHeader {
    let mut values = headers.get_all(HEADER).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(unquoted(value.trim_matches([' ', '\t'])).into())),
        (Some(_), _) => Err(Malformed),
    }
}

fn key(in_meta: Option<&RawValue>, in_header: &InHeader) -> Result<Option<String>, RpcError> {
    let refused = |text: &'static str| Err(RpcError::invalid_params(text));
    let in_meta = match in_meta.map(string) {
        None => None,
        Some(Some(key)) => Some(key.into_owned()),
        Some(None) => {
            return refused("Invalid params: io.raincheck/idempotencyKey must be a string");
        }
    };
    let in_header = match in_header {
        Ok(key) => key.as_deref().map(ToOwned::to_owned),
        Err(Malformed) => {
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

/// The header is a string of HTTP's structured fields, quotes and all; most clients write it bare.
fn unquoted(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .filter(|inside| !inside.contains(['"', '\\']))
        .unwrap_or(value)
}

/// `None` where there is none in them.
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
