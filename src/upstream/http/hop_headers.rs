//! Headers that are not passed on: those of one connection (RFC 9110, 7.6.1), and those of a body that is not
//! sent.

use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, VIA};
use uuid::Uuid;

use crate::mcp::headers::remove_where;

/// The headers that `Connection` names.
pub(in crate::upstream) fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect()
}

pub(in crate::upstream) fn is_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "http2-settings"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes the headers of one connection, and those that `Connection` names.
pub(in crate::upstream) fn strip(headers: &mut HeaderMap) {
    // The names are read before `Connection` itself is removed.
    for name in named(headers) {
        headers.remove(name);
    }
    remove_where(headers, |name| is_hop(name.as_str()));
}

/// The name of this process in `Via`, where every proxy names itself (RFC 9110, 7.6.3). A request that comes
/// back with this name goes in a circle.
#[derive(Debug)]
pub(in crate::upstream) struct ViaMark(HeaderValue);

impl ViaMark {
    pub(in crate::upstream) fn random() -> Self {
        let random = Uuid::new_v4().simple().to_string();
        let value = HeaderValue::try_from(format!("1.1 raincheck-{random}"));
        // Hexadecimal digits are a valid value. The fallback only takes the place of a panic.
        Self(value.unwrap_or_else(|_| HeaderValue::from_static("1.1 raincheck")))
    }

    /// Adds the name to those of other proxies, because the circle may be larger.
    pub(in crate::upstream) fn put(&self, headers: &mut HeaderMap) {
        headers.append(VIA, self.0.clone());
    }

    pub(in crate::upstream) fn is_in(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).iter().any(|value| {
            // A proxy may join several `Via` headers into one (RFC 9110, 5.3).
            let mut hops = value.as_bytes().split(|byte| *byte == b',');
            hops.any(|hop| hop.trim_ascii() == self.0.as_bytes())
        })
    }
}

/// The headers that describe a request's own body, and the message in it.
pub(in crate::upstream) fn is_body(name: &str) -> bool {
    matches!(
        name,
        "content-digest"
            | "content-encoding"
            | "content-language"
            | "content-length"
            | "content-md5"
            | "content-type"
            | "digest"
            | "expect"
            | "mcp-method"
            | "mcp-name"
            | "repr-digest"
    )
}

/// Removes the headers of a body from a request that goes on without that body.
pub(in crate::upstream) fn strip_body(headers: &mut HeaderMap) {
    remove_where(headers, |name| is_body(name.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_known_by_our_name_only() {
        let (ours, other) = (ViaMark::random(), ViaMark::random());
        let mut headers = HeaderMap::new();
        assert!(!ours.is_in(&headers));
        other.put(&mut headers);
        assert!(!ours.is_in(&headers));
        ours.put(&mut headers);
        assert!(ours.is_in(&headers) && other.is_in(&headers));
        let text = ours.0.to_str().unwrap();
        let folded = format!("1.1 gate, {text} , 2 edge");
        headers.insert(VIA, folded.parse().unwrap());
        assert!(ours.is_in(&headers) && !other.is_in(&headers));
    }

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("proxy-authorization", "secret"),
            ("te", "trailers"),
            ("mcp-session-id", "s"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        strip(&mut headers);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["mcp-session-id"]
        );
    }
}
