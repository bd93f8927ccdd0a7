//! Which of a client's headers go to the server. There is one rule, for requests that pass and for those that
//! are carried.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, HeaderValue};

use crate::mcp::header_names::{has_one_reading, reading};
use crate::mcp::headers::{is_of_protocol, owned, remove_where};
use crate::upstream::credentials::{CredentialRule, secret};
use crate::upstream::http::hop_headers;
use crate::upstream::query::QueryRule;

/// The client's headers that go to the server, beside the message.
pub type ClientHeaders = Arc<[(HeaderName, HeaderValue)]>;

/// Lists headers that go to the server. Nothing is allocated for none.
pub fn listed(headers: impl Iterator<Item = (HeaderName, HeaderValue)>) -> ClientHeaders {
    let mut headers = headers.peekable();
    match headers.peek() {
        Some(_) => headers.collect(),
        None => ClientHeaders::default(),
    }
}

/// Headers that never go to the server. The first line of a request says what it is for; some servers would
/// believe a header instead. Which web pages may call is decided before, and a server would refuse the pages that it does not
/// know. CGI turns `Proxy` into the variable by which programs choose their proxy (httpoxy).
fn goes_nowhere(name: &str) -> bool {
    matches!(
        name,
        "content-length"
            | "expect"
            | "host"
            | "origin"
            | "proxy"
            | "sec-fetch-site"
            | "x-http-method"
            | "x-http-method-override"
            | "x-method-override"
            | "x-original-url"
            | "x-rewrite-url"
    )
}

/// Headers that go to every server, beside `mcp-*`: none of them says who the client is.
fn goes_anywhere(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept-encoding"
            | "baggage"
            | "content-encoding"
            | "content-type"
            | "last-event-id"
            | "traceparent"
            | "tracestate"
            | "user-agent"
            | "via"
    )
}

/// Headers that raincheck sets itself in a request that it carries, beside `content-*` and `mcp-*`.
fn is_ours(name: &str) -> bool {
    matches!(
        name,
        "accept" | "accept-encoding" | "idempotency-key" | "last-event-id"
    )
}

/// Headers that do not change a call. Any other header may be how the server knows its client, so a call that
/// came with one is not sent again without its client.
fn is_harmless(name: &str) -> bool {
    matches!(
        name,
        "accept-charset"
            | "accept-language"
            | "b3"
            | "baggage"
            | "cache-control"
            | "correlation-id"
            | "dnt"
            | "forwarded"
            | "newrelic"
            | "pragma"
            | "priority"
            | "referer"
            | "request-id"
            | "sentry-trace"
            | "traceparent"
            | "tracestate"
            | "uber-trace-id"
            | "user-agent"
            | "via"
            | "x-amzn-trace-id"
            | "x-cloud-trace-context"
            | "x-correlation-id"
            | "x-real-ip"
            | "x-request-id"
            | "x-requested-with"
    )
}

/// Headers of browsers, meshes and tracers, by the beginning of their names.
const HARMLESS_BEGINNINGS: [&str; 7] = [
    "l5d-",
    "sec-",
    "x-b3-",
    "x-datadog-",
    "x-envoy-",
    "x-forwarded-",
    "x-ot-",
];

/// The rule for one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Forward {
    /// The server is on this machine: proxy and server are one resource, and what is sent stays here.
    pub(super) is_local: bool,
    /// Headers that also go to a server on another machine. Lower case.
    pub(super) further: Arc<[HeaderName]>,
    pub(super) credentials: CredentialRule,
    /// Headers that some servers read as one that raincheck writes, or as a credential. Lower case.
    pub(super) taken: Arc<[HeaderName]>,
    /// The parameters of a client's query that go to the server.
    pub(super) query: QueryRule,
}

/// Returns the headers that some servers read as one of these names, which is spelt in another way.
pub(super) fn also_read_as(names: &[&HeaderName]) -> Arc<[HeaderName]> {
    names
        .iter()
        .filter(|name| !has_one_reading(name.as_str()))
        .filter_map(|name| reading(name.as_str()).parse().ok())
        .collect()
}

impl Forward {
    /// Returns `true` if the server may know its client by this header, so that no text shows its value.
    fn is_secret(&self, name: &HeaderName) -> bool {
        *name == AUTHORIZATION
            || *name == COOKIE
            || name.as_str() == "x-api-key"
            || self.further.contains(name)
    }

    fn takes(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        if self.taken.contains(name) {
            return false;
        }
        // The protocol's own headers first: each request has several.
        if is_of_protocol(text) || goes_anywhere(text) {
            return true;
        }
        if goes_nowhere(text) || text.starts_with("proxy-") {
            return false;
        }
        self.further.contains(name)
            // Some servers read other spellings as a header that was removed here, so such names do not pass.
            || ((self.is_local || text.starts_with("mcp-")) && has_one_reading(text))
    }

    /// Removes the headers that do not go to the server from a request that passes. `Host` and `Content-Length` stay: each
    /// request has them, and who sends it replaces them.
    pub(super) fn strip(&self, headers: &mut HeaderMap) {
        for name in hop_headers::named(headers) {
            headers.remove(name);
        }
        remove_where(headers, |name| {
            if *name == HOST || *name == CONTENT_LENGTH {
                false
            } else if self.credentials.names(name) {
                !self.credentials.passes(name)
            } else {
                !self.takes(name) || hop_headers::is_hop(name.as_str())
            }
        });
        join_cookies(headers);
    }

    /// The client's headers that go to the server with a request that is carried, without its credentials and without
    /// the headers that raincheck sets itself.
    pub(super) fn carried(&self, headers: &HeaderMap) -> ClientHeaders {
        let named = hop_headers::named(headers);
        let goes = |name: &HeaderName| {
            let text = name.as_str();
            let is_said_by_us = self.credentials.names(name)
                || is_ours(text)
                || is_of_protocol(text)
                || text.starts_with("content-")
                || hop_headers::is_body(text);
            !is_said_by_us
                && !hop_headers::is_hop(text)
                && !named.contains(name)
                && self.takes(name)
        };
        let kept = headers.iter().filter(|(name, _)| goes(name));
        let kept = kept.map(|(name, value)| {
            let value = if self.is_secret(name) {
                secret(value)
            } else {
                owned(value)
            };
            (name.clone(), value)
        });
        // Most requests have at most one such header.
        if headers.get_all(COOKIE).iter().nth(1).is_none() {
            return listed(kept);
        }
        let mut joined: HeaderMap = kept.collect();
        join_cookies(&mut joined);
        let joined = joined.iter();
        joined
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Returns `true` if the server may know its client by one of these headers.
pub(super) fn may_identify(headers: &ClientHeaders) -> bool {
    headers.iter().any(|(name, _)| {
        let text = name.as_str();
        let mut beginnings = HARMLESS_BEGINNINGS.iter();
        !is_harmless(text) && !beginnings.any(|begin| text.starts_with(begin))
    })
}

/// HTTP/2 may take cookies apart, and HTTP/1.1 has one header of them (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        // The joined value is a new one, without the marks of its parts.
        joined.set_sensitive(true);
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(written: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in written {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        headers
    }

    fn names<'a>(names: impl Iterator<Item = &'a HeaderName>) -> Vec<&'a str> {
        let mut names: Vec<&str> = names.map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    fn local() -> Forward {
        Forward {
            is_local: true,
            credentials: CredentialRule {
                forwards: true,
                ..CredentialRule::default()
            },
            ..Forward::default()
        }
    }

    fn request() -> HeaderMap {
        headers(&[
            ("accept", "application/json"),
            ("authorization", "Bearer a"),
            ("connection", "x-mine"),
            ("content-length", "3"),
            ("content-type", "application/json"),
            ("cookie", "a=1"),
            ("cookie", "b=2"),
            ("expect", "100-continue"),
            ("host", "localhost"),
            ("http2-settings", "x"),
            ("mcp-session-id", "s"),
            ("proxy-authorization", "Basic x"),
            ("traceparent", "00-1-2-01"),
            ("user-agent", "suite"),
            ("x-api-key", "k"),
            ("x-http-method-override", "DELETE"),
            ("x-mine", "1"),
            ("x-original-url", "/admin"),
            ("x-rewrite-url", "/admin"),
            ("x-tenant", "t"),
            ("mcp-param-user_id", "7"),
            ("mcp-session_id", "s"),
            ("proxy", "http://evil.example"),
            ("content_length", "0"),
            ("x.tenant", "u"),
            ("x_tenant", "u"),
        ])
    }

    #[test]
    fn a_server_on_this_machine_hears_all_but_what_misleads_it() {
        let mut passed = request();
        local().strip(&mut passed);
        assert_eq!(
            names(passed.keys()),
            [
                "accept",
                "authorization",
                "content-length",
                "content-type",
                "cookie",
                "host",
                "mcp-param-user_id",
                "mcp-session-id",
                "traceparent",
                "user-agent",
                "x-api-key",
                "x-tenant",
            ]
        );
        assert_eq!(passed[COOKIE], "a=1; b=2");
    }

    #[test]
    fn any_other_server_hears_what_it_needs() {
        let mut passed = request();
        let further = [HeaderName::from_static("x-tenant")].into();
        let remote = Forward {
            further,
            ..Forward::default()
        };
        remote.strip(&mut passed);
        assert_eq!(
            names(passed.keys()),
            [
                "accept",
                "content-length",
                "content-type",
                "host",
                "mcp-param-user_id",
                "mcp-session-id",
                "traceparent",
                "user-agent",
                "x-tenant",
            ]
        );
        let carried = remote.carried(&request());
        assert_eq!(
            names(carried.iter().map(|(name, _)| name)),
            ["traceparent", "user-agent", "x-tenant"]
        );
    }

    #[test]
    fn a_call_that_is_carried_says_the_same_of_its_client() {
        let carried = local().carried(&request());
        assert_eq!(
            names(carried.iter().map(|(name, _)| name)),
            [
                "cookie",
                "traceparent",
                "user-agent",
                "x-api-key",
                "x-tenant"
            ]
        );
        let cookie = carried.iter().find(|(name, _)| *name == COOKIE);
        assert_eq!(cookie.unwrap().1, "a=1; b=2");
    }

    #[test]
    fn credentials_go_as_one_wherever_the_server_is() {
        let (key, caller) = ("x-api-key", "x-tenant");
        for (is_local, forwards) in [(true, true), (true, false), (false, true), (false, false)] {
            let forward = Forward {
                is_local,
                credentials: CredentialRule {
                    forwards,
                    further: [HeaderName::from_static(key)].into(),
                    caller_header: Some(HeaderName::from_static(caller)),
                },
                ..Forward::default()
            };
            let mut passed = request();
            forward.strip(&mut passed);
            for name in ["authorization", key] {
                assert_eq!(passed.contains_key(name), forwards, "{name} {is_local}");
            }
            assert!(passed.contains_key(caller));
            let carried = forward.carried(&request());
            let mut carried = carried.iter().map(|(name, _)| name.as_str());
            assert!(!carried.any(|name| [key, caller, "authorization"].contains(&name)));
        }
    }

    /// An operator may name such a header on purpose. Then it goes as it is spelt, and what reads as it does not.
    #[test]
    fn a_header_with_two_readings_goes_only_where_it_is_named() {
        let name = HeaderName::from_static;
        let sent = [("x_tenant", "u"), ("x-tenant", "t"), ("x.tenant", "v")];
        let names_of = |forward: &Forward| {
            let mut passed = headers(&sent);
            forward.strip(&mut passed);
            names(passed.keys()).join(" ")
        };
        let mut forward = local();
        assert_eq!(names_of(&forward), "x-tenant");
        forward.further = [name("x_tenant")].into();
        assert_eq!(names_of(&forward), "x-tenant x_tenant");
        forward.is_local = false;
        assert_eq!(names_of(&forward), "x_tenant");
        // raincheck writes it, or it is a credential.
        let mut forward = local();
        forward.taken = also_read_as(&[&name("x_tenant"), &name("x-plain")]);
        assert_eq!(names_of(&forward), "");
        forward.credentials.further = [name("x_tenant")].into();
        assert_eq!(names_of(&forward), "x_tenant");
        assert!(forward.carried(&headers(&sent)).is_empty());
    }

    #[test]
    fn what_may_name_a_client_is_told_from_what_does_not() {
        let of = |written: &[(&'static str, &'static str)]| {
            may_identify(&local().carried(&headers(written)))
        };
        assert!(!of(&[]));
        assert!(!of(&[
            ("accept-language", "*"),
            ("sec-fetch-mode", "cors"),
            ("user-agent", "node"),
            ("traceparent", "00-1-2-01"),
            ("x-b3-traceid", "1"),
            ("x-forwarded-for", "192.0.2.1"),
        ]));
        for one in ["cookie", "x-api-key", "x-tenant"] {
            assert!(of(&[("user-agent", "node"), (one, "1")]), "{one}");
        }
    }
}
