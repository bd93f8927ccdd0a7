//! Headers that do not go where the rest goes: those of one connection (RFC 9110, 7.6.1), and those of a body
//! that stays behind.

use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName};

const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Removes them, and whatever `Connection` names.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// What a request says of its own body, and of the message in it.
const BODY: [&str; 11] = [
    "content-digest",
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "digest",
    "expect",
    "mcp-method",
    "mcp-name",
    "repr-digest",
];

/// Removes them where a request goes on without its body, or with another one.
pub(super) fn strip_body(headers: &mut HeaderMap) {
    for name in BODY {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
