//! Addresses that a server names: the endpoint of a line, the target of a redirect. Pure.

use hyper::Uri;
use url::Url;

use crate::upstream::query::joined;

/// The address that a server named in an answer from `base`, as path and query. `None` where it is at another origin:
/// a server must not send us, and the caller's credentials, elsewhere. The parameters of the query of `base`, which the
/// operator wrote, go there, too.
pub(in crate::upstream) fn resolve(base: &Url, named: &str) -> Option<Uri> {
    let named = base.join(named.trim()).ok()?;
    if named.origin() != base.origin() {
        return None;
    }
    // A fragment is left out, because no request target has one (RFC 9110, 7.1).
    let target = match named.query() {
        Some(query) => format!("{}?{query}", named.path()),
        None => named.path().to_owned(),
    };
    let target: Uri = target.parse().ok()?;
    Some(match base.query() {
        Some(own) => joined(&target, own),
        None => target,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(endpoint: &str) -> Option<String> {
        let stream = Url::parse("http://tools.local:8000/mcp/sse").unwrap();
        resolve(&stream, endpoint).map(|uri| uri.to_string())
    }

    #[test]
    fn an_endpoint_is_relative_to_its_stream() {
        for (endpoint, target) in [
            ("/message?sessionId=a-b", "/message?sessionId=a-b"),
            ("messages/?session_id=1", "/mcp/messages/?session_id=1"),
            ("?session=1", "/mcp/sse?session=1"),
            (" ../m#x ", "/m"),
            ("http://tools.local:8000/m?a=%20b", "/m?a=%20b"),
            ("HTTP://TOOLS.local:8000", "/"),
            ("//tools.local:8000/m", "/m"),
        ] {
            assert_eq!(resolved(endpoint).as_deref(), Some(target), "{endpoint}");
        }
    }

    #[test]
    fn an_endpoint_elsewhere_is_none() {
        for endpoint in [
            "http://evil.example/m",
            "//evil.example/m",
            "\\\\evil.example/m",
            "https://tools.local:8000/m",
            "http://tools.local/m",
            "http://tools.local:8000@evil.example/m",
            "file:///etc/passwd",
            "data:,x",
            "http://[",
        ] {
            assert_eq!(resolved(endpoint), None, "{endpoint}");
        }
    }
}
