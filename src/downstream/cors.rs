//! Web pages: the headers of the CORS protocol (Fetch standard, 3.3), by which a browser lets a page read an answer.
//!
//! raincheck decides alone which pages read: it answers preflights itself, because a browser sends them without a
//! credential, and replaces the server's headers. A request without `Origin` has no part in this.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderName, HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, Response, StatusCode};

use super::inbound::access::Names;
use super::outbound::response;
use crate::downstream::body::Body;
use crate::mcp::headers::remove_where;

const ANY: HeaderValue = HeaderValue::from_static("*");

/// The methods of the MCP endpoint, in an answer to a preflight.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

/// The headers that a page can read beside those that every page can, as clients look for them. The server's `mcp-*` headers
/// are added.
const EXPOSED: &str = "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, Retry-After";

/// The time that a browser may remember the answer to a preflight, in seconds: the most that Chromium does. An
/// origin that is no longer allowed is refused all the same, because each request is judged by itself.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// The headers on which the answer to a preflight depends.
const VARY_OF_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
);

/// A page of the public network asks for a host of a private one (Private Network Access).
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// The headers of a response are complete, in its extensions.
#[derive(Debug, Clone, Copy)]
struct Settled;

/// The page that sent the request, by its origin.
pub(super) fn page(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ORIGIN).cloned()
}

/// Answers a preflight of a page that may read answers. `None`: it is none.
pub(super) fn preflight(
    names: &Names,
    method: &Method,
    asked: &HeaderMap,
) -> Option<Response<Body>> {
    if *method != Method::OPTIONS || !asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    // A page that may not read gets no such answer, and then its browser does not send the request.
    let origin = asked.get(ORIGIN).filter(|origin| names.may_read(origin))?;
    Some(allowed(asked, METHODS, origin.clone(), VARY_OF_PREFLIGHT))
}

/// Answers OPTIONS for something that pages of every origin may read.
pub(super) fn preflight_of_any(asked: &HeaderMap) -> Response<Body> {
    let vary = HeaderValue::from_static("Access-Control-Request-Headers");
    allowed(asked, HeaderValue::from_static("GET"), ANY, vary)
}

fn allowed(
    asked: &HeaderMap,
    methods: HeaderValue,
    origin: HeaderValue,
    vary: HeaderValue,
) -> Response<Body> {
    let mut response = response::empty(StatusCode::NO_CONTENT);
    // `settle` receives this answer, too, and would replace its headers.
    response.extensions_mut().insert(Settled);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    headers.insert(VARY, vary);
    // A client of MCP may send headers of any name: `Mcp-Param-*`, and those that its user sets.
    for names in asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.append(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

/// Lets pages of every origin read a response.
pub(super) fn expose_to_any<B>(response: &mut Response<B>) {
    response.extensions_mut().insert(Settled);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
}

/// Lets the page that sent the request read the response, if it may. No page may send cookies or certificates with its
/// requests: there is no `Access-Control-Allow-Credentials`.
pub(super) fn settle<B>(names: &Names, page: HeaderValue, response: &mut Response<B>) {
    if response.extensions_mut().remove::<Settled>().is_some() {
        return;
    }
    let headers = response.headers_mut();
    // The server's own list of exposed headers is read before it is removed below.
    let exposed = exposed(headers);
    remove_where(headers, |name| name.as_str().starts_with("access-control-"));
    // The answer depends on the origin also where it is refused: a cache must not give it to another page.
    if !varies_by_origin(headers) {
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if names.may_read(&page) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
}

/// The headers that a page can read: those that clients look for, and those that the server exposes.
fn exposed(headers: &HeaderMap) -> HeaderValue {
    let mut exposed = EXPOSED.to_owned();
    let theirs = headers.get_all(ACCESS_CONTROL_EXPOSE_HEADERS).iter();
    let theirs = theirs.filter_map(|value| value.to_str().ok());
    let theirs = theirs.flat_map(|value| value.split(',').map(str::trim));
    let named = headers.keys().map(HeaderName::as_str);
    for name in theirs.chain(named.filter(|name| name.starts_with("mcp-"))) {
        let mut known = exposed.split(", ");
        if !name.is_empty() && !known.any(|known| known.eq_ignore_ascii_case(name)) {
            exposed.push_str(", ");
            exposed.push_str(name);
        }
    }
    HeaderValue::try_from(exposed).unwrap_or_else(|_| HeaderValue::from_static(EXPOSED))
}

fn varies_by_origin(headers: &HeaderMap) -> bool {
    headers.get_all(VARY).iter().any(|value| {
        let mut names = value.as_bytes().split(|byte| *byte == b',');
        names.any(|name| matches!(name.trim_ascii(), b"*") || is_origin(name.trim_ascii()))
    })
}

fn is_origin(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(ORIGIN.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    const APP: &str = "https://app.example.com";
    const LOCAL: &str = "http://localhost:6274";

    fn names(address: [u8; 4]) -> Names {
        Names {
            path: "/mcp".into(),
            public_path: None,
            hosts: vec!["mcp.example.com".into()],
            origins: vec![APP.into()],
            address: IpAddr::from(address),
        }
    }

    fn headers(written: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in written {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn all<'h>(headers: &'h HeaderMap, name: &str) -> Vec<&'h str> {
        let values = headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn only_a_preflight_of_a_page_that_may_read_is_answered() {
        let (loopback, lan) = ([127, 0, 0, 1], [10, 0, 0, 7]);
        let asks = ("access-control-request-method", "POST");
        for (method, address, asked, is_answered) in [
            ("OPTIONS", loopback, vec![("origin", APP), asks], true),
            ("OPTIONS", lan, vec![("origin", APP), asks], true),
            ("OPTIONS", loopback, vec![("origin", LOCAL), asks], true),
            ("OPTIONS", lan, vec![("origin", LOCAL), asks], false),
            ("OPTIONS", loopback, vec![("origin", APP)], false),
            ("OPTIONS", loopback, vec![asks], false),
            ("POST", loopback, vec![("origin", APP), asks], false),
            ("OPTIONS", loopback, vec![("origin", "null"), asks], false),
            (
                "OPTIONS",
                loopback,
                vec![("origin", "https://mcp.example.com"), asks],
                false,
            ),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let answer = preflight(&names(address), &method, &headers(&asked));
            assert_eq!(answer.is_some(), is_answered, "{method} {asked:?}");
        }
    }

    #[test]
    fn a_preflight_allows_what_it_asks_for() {
        let asked = headers(&[
            ("origin", LOCAL),
            ("access-control-request-method", "DELETE"),
            (
                "access-control-request-headers",
                "authorization,mcp-param-a",
            ),
            ("access-control-request-private-network", "true"),
        ]);
        let local = names([127, 0, 0, 1]);
        let mut answer = preflight(&local, &Method::OPTIONS, &asked).unwrap();
        settle(&local, HeaderValue::from_static(LOCAL), &mut answer);
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
        let head = answer.headers();
        for (name, value) in [
            ("access-control-allow-origin", LOCAL),
            ("access-control-allow-methods", "GET, POST, DELETE"),
            ("access-control-allow-headers", "authorization,mcp-param-a"),
            ("access-control-allow-private-network", "true"),
            ("access-control-max-age", "7200"),
        ] {
            assert_eq!(all(head, name), [value], "{name}");
        }
        assert!(head["vary"].to_str().unwrap().starts_with("Origin, "));
        assert!(!head.contains_key("access-control-allow-credentials"));
        let plain = headers(&[("origin", APP), ("access-control-request-method", "POST")]);
        let answer = preflight(&local, &Method::OPTIONS, &plain).unwrap();
        let unasked = [
            "access-control-allow-headers",
            "access-control-allow-private-network",
        ];
        assert!(
            !unasked
                .iter()
                .any(|name| answer.headers().contains_key(*name))
        );
    }

    #[test]
    fn what_the_server_says_is_replaced() {
        let vary = ["vary"; 2];
        for (theirs, exposed, varies) in [
            (vec![], EXPOSED.to_owned(), vec!["Origin"]),
            (
                vec![
                    ("access-control-allow-origin", "*"),
                    ("access-control-allow-origin", "https://other.example"),
                    ("access-control-allow-credentials", "true"),
                    ("access-control-max-age", "1"),
                    (
                        "access-control-expose-headers",
                        "mcp-session-id,X-Request-Id",
                    ),
                    ("access-control-expose-headers", "*"),
                    ("mcp-session-id", "s1"),
                    ("mcp-hint", "1"),
                    (vary[0], "Accept-Encoding"),
                ],
                format!("{EXPOSED}, X-Request-Id, *, mcp-hint"),
                vec!["Accept-Encoding", "Origin"],
            ),
            (
                vec![(vary[0], "accept, ORIGIN")],
                EXPOSED.to_owned(),
                vec!["accept, ORIGIN"],
            ),
        ] {
            for (page, may_read) in [(APP, true), ("https://mcp.example.com", false)] {
                let mut response = Response::new(());
                *response.headers_mut() = headers(&theirs);
                let page = HeaderValue::from_static(page);
                settle(&names([10, 0, 0, 7]), page, &mut response);
                let head = response.headers();
                let mut ours = head.keys().map(HeaderName::as_str);
                assert_eq!(all(head, "vary"), varies);
                if may_read {
                    assert_eq!(all(head, "access-control-allow-origin"), [APP]);
                    assert_eq!(all(head, "access-control-expose-headers"), [&*exposed]);
                    let count = ours
                        .filter(|name| name.starts_with("access-control-"))
                        .count();
                    assert_eq!(count, 2, "{head:?}");
                } else {
                    assert!(!ours.any(|name| name.starts_with("access-control-")));
                }
            }
        }
    }

    #[test]
    fn what_every_page_may_read_stays_so() {
        let mut response = Response::new(());
        expose_to_any(&mut response);
        let page = HeaderValue::from_static("https://evil.example");
        settle(&names([127, 0, 0, 1]), page, &mut response);
        assert_eq!(
            all(response.headers(), "access-control-allow-origin"),
            ["*"]
        );
    }
}
