//! The headers of Streamable HTTP: their names, and the values of `Mcp-Name` and `Mcp-Param-*` (Value
//! Encoding).

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use super::base64;

/// Returns `true` for a header that the protocol itself defines. Servers may have others that begin with `mcp-`.
pub fn is_of_protocol(name: &str) -> bool {
    // Whole names, of which most differ from any other in their length alone: each request asks this of each of its headers.
    matches!(
        name,
        "mcp-method" | "mcp-name" | "mcp-protocol-version" | "mcp-session-id"
    ) || name.starts_with("mcp-param-")
}

pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The value that a header carries; `None` if its encoding is not canonical base64 of UTF-8. The value is
/// decoded once, never twice.
pub fn decode(value: &str) -> Option<Cow<'_, str>> {
    let inside = value
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX));
    match inside {
        None => Some(Cow::Borrowed(value)),
        Some(inside) => String::from_utf8(base64::decode(inside)?)
            .ok()
            .map(Cow::Owned),
    }
}

/// Removes the headers for which `goes` is true. One pass over the headers costs less than looking up each
/// name of a list, because most requests have none of those names. Returns the number of names.
pub fn remove_where(headers: &mut HeaderMap, goes: impl Fn(&HeaderName) -> bool) -> usize {
    // The names are copied, because a header cannot be removed while the map is read.
    let mut gone = Vec::new();
    for name in headers.keys() {
        if goes(name) {
            gone.push(name.clone());
        }
    }
    let count = gone.len();
    for name in gone {
        headers.remove(name);
    }
    count
}

/// A value of a client's request in memory of its own. hyper's is a part of the buffer that the request was read into, 8 KiB or
/// more, which would stay for as long as the call runs.
pub fn owned(value: &HeaderValue) -> HeaderValue {
    let mut owned = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    owned.set_sensitive(value.is_sensitive());
    owned
}

/// The value as a header may carry it.
pub fn encode(value: &str) -> Cow<'_, str> {
    let is_plain = value
        .bytes()
        .all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
        // Receivers remove white space around a value (RFC 9110, 5.5).
        && value.trim_matches([' ', '\t']) == value
        // The receiver would decode a plain value that looks like an encoded one.
        && !(value.starts_with(PREFIX) && value.ends_with(SUFFIX));
    if is_plain {
        return Cow::Borrowed(value);
    }
    let mut out = String::from(PREFIX);
    base64::encode(value.as_bytes(), &mut out);
    out.push_str(SUFFIX);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_specification() {
        for (plain, encoded) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ] {
            assert_eq!(encode(plain), encoded);
            assert_eq!(decode(encoded).unwrap(), plain);
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        for bad in [
            "SGVsbG8",
            "SGVsbG8=x",
            "SGVsbG9=",
            "====",
            "SG Vs",
            "/w==",
            "A===",
        ] {
            assert_eq!(decode(&format!("{PREFIX}{bad}{SUFFIX}")), None, "{bad}");
        }
        assert_eq!(decode("=?base64??=").unwrap(), "");
    }
}
