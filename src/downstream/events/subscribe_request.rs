//! The part of `events/subscribe` about the delivery. Pure.

use serde_json::value::RawValue;

use super::request::{no_mode, present};
use crate::mcp::error::RpcError;
use crate::mcp::json::{Object, string};
use crate::notify::signature::WebhookSecret;
use crate::task::events::subscriptions::SecretText;

/// The longest address of a receiver. The store keeps it.
const URL_BYTES_MAX: usize = 2048;

/// The lifetime of a subscription if the client does not set it, its minimum, and its maximum.
const LIVES_MS: u64 = 60 * 60 * 1000;
const LIVES_MS_MIN: u64 = 10 * 1000;
const LIVES_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// The receiver at which the client wants events, and the form of the delivery.
#[derive(Debug)]
pub(super) struct SubscribeRequest {
    pub(super) url: Box<str>,
    pub(super) secret: SecretText,
    /// The lifetime of the subscription.
    pub(super) lives_ms: u64,
}

impl SubscribeRequest {
    pub(super) fn read(params: &Object<'_>) -> Result<Self, RpcError> {
        let url = callback(params)?;
        let delivery = params.get_object("delivery").unwrap_or_default();
        // Clients of later drafts leave the mode out.
        if let Some(mode) = present(&delivery, "mode") {
            let mode = string(mode).ok_or_else(|| invalid("delivery.mode"))?;
            if mode != "webhook" {
                return Err(no_mode(&mode));
            }
        }
        let secret = delivery.get_str("secret");
        // Kept as text, because each message parses it again: the store has the text.
        let secret = secret.filter(|text| WebhookSecret::parse(text).is_some());
        let secret = secret.ok_or_else(|| {
            RpcError::invalid_params(
                "Invalid params: delivery.secret must be whsec_ and the base64 of 24 to 64 bytes",
            )
        })?;
        let lives_ms = match params.get("ttlMs").map(RawValue::get) {
            None => LIVES_MS,
            // The client wants no end, and gets the longest time.
            Some("null") => LIVES_MS_MAX,
            Some(number) => number.parse().map_err(|_| invalid("ttlMs"))?,
        };
        Ok(Self {
            url,
            secret: SecretText::new(secret.trim()),
            lives_ms: lives_ms.clamp(LIVES_MS_MIN, LIVES_MS_MAX),
        })
    }
}

/// The address of the receiver. Where it may lead is checked later.
pub(super) fn callback(params: &Object<'_>) -> Result<Box<str>, RpcError> {
    let delivery = params.get_object("delivery");
    let url = delivery.as_ref().and_then(|it| it.get_str("url"));
    let url = url.filter(|url| !url.is_empty() && url.len() <= URL_BYTES_MAX);
    url.map(Into::into).ok_or_else(|| invalid("delivery.url"))
}

/// The refusal of an address to which raincheck sends nothing.
pub(super) fn not_a_callback() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: delivery.url must be an https address of the public internet",
    )
}

fn invalid(what: &str) -> RpcError {
    RpcError::invalid_params(format!("Invalid params: {what} is not what it must be"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::code;

    const SECRET: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4";

    fn read(delivery: &str, more: &str) -> Result<SubscribeRequest, i64> {
        let params = format!(r#"{{"delivery":{delivery}{more}}}"#);
        let params = Object::parse(&params).unwrap();
        SubscribeRequest::read(&params).map_err(|error| error.code)
    }

    fn delivery(more: &str) -> String {
        format!(r#"{{"url":"https://hooks.example/in","secret":"{SECRET}"{more}}}"#)
    }

    #[test]
    fn a_lifetime_is_granted_within_bounds() {
        for (ttl, lives_ms) in [
            ("", LIVES_MS),
            (r#","ttlMs":null"#, LIVES_MS_MAX),
            (r#","ttlMs":0"#, LIVES_MS_MIN),
            (r#","ttlMs":1800000"#, 1_800_000),
            (r#","ttlMs":99999999999"#, LIVES_MS_MAX),
        ] {
            assert_eq!(
                read(&delivery(""), ttl).unwrap().lives_ms,
                lives_ms,
                "{ttl}"
            );
        }
        for ttl in [r#","ttlMs":-1"#, r#","ttlMs":"1""#] {
            let refused = read(&delivery(""), ttl).unwrap_err();
            assert_eq!(refused, code::INVALID_PARAMS, "{ttl}");
        }
    }

    #[test]
    fn what_is_no_delivery_is_refused() {
        let long = format!(
            r#"{{"url":"https://x/{}","secret":"{SECRET}"}}"#,
            "x".repeat(URL_BYTES_MAX)
        );
        for no_delivery in [
            "null",
            "{}",
            r#"{"url":"https://hooks.example/in"}"#,
            r#"{"url":"https://hooks.example/in","secret":"whsec_c2hvcnQ="}"#,
            r#"{"url":"https://hooks.example/in","secret":"abcdefghijklmnopqrstuvwxyz"}"#,
            &long,
        ] {
            assert_eq!(
                read(no_delivery, "").unwrap_err(),
                code::INVALID_PARAMS,
                "{no_delivery}"
            );
        }
        assert!(read(&delivery(r#","mode":"webhook""#), "").is_ok());
        let push = read(&delivery(r#","mode":"push""#), "").unwrap_err();
        assert_eq!(push, code::EVENTS_UNSUPPORTED);
    }
}
