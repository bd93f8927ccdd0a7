//! Which endpoint a request came to, and whether it may: path, Host and Origin. Pure.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::http::Uri;
use hyper::{HeaderMap, Method};

use crate::base::printable::short_bytes;

/// The endpoints of the public listener. Every other path is 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum Endpoint {
    Mcp,
    /// OAuth clients read there where to sign in (RFC 9728).
    ProtectedResource,
}

impl Endpoint {
    /// The methods of the endpoint, as in an `Allow` header.
    pub(in crate::downstream) fn methods(self) -> &'static str {
        match self {
            Self::Mcp => "POST, GET, DELETE",
            Self::ProtectedResource => "GET",
        }
    }

    /// Returns `true` if the endpoint has the method. Other methods have no meaning in MCP, but may have one to the
    /// server: TRACE would show the client the headers that raincheck sends.
    pub(in crate::downstream) fn takes(self, method: &Method) -> bool {
        match self {
            Self::Mcp => [Method::POST, Method::GET, Method::DELETE].contains(method),
            Self::ProtectedResource => *method == Method::GET,
        }
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const PROTECTED_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// The names under which clients may call this listener. Other names are refused, against DNS rebinding.
#[derive(Debug, Clone)]
pub struct Names {
    /// The path of the MCP endpoint.
    pub path: String,
    /// The path of `listen.public_url`, which something between the clients and raincheck may change to `path`.
    pub public_path: Option<String>,
    /// Further values of `Host` without port, beside loopback names and the listen address.
    pub hosts: Vec<String>,
    /// Further values of `Origin`, beside loopback ones.
    pub origins: Vec<String>,
    /// The address that is listened on.
    pub address: IpAddr,
}

impl Names {
    pub(in crate::downstream) fn endpoint(&self, uri: &Uri) -> Option<Endpoint> {
        let path = uri.path();
        if is_one(path, &self.path) {
            return Some(Endpoint::Mcp);
        }
        let rest = path.strip_prefix(PROTECTED_RESOURCE)?;
        let public_path = self.public_path.as_deref();
        let is_ours = rest.is_empty()
            || is_one(rest, &self.path)
            || public_path.is_some_and(|public| is_one(rest, public));
        is_ours.then_some(Endpoint::ProtectedResource)
    }

    /// Returns `true` if `Host` names this listener. A web page that rebinds its own name to this address still sends
    /// its own name.
    pub(in crate::downstream) fn host_is_ours(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(HOST).iter();
        let (first, second) = (values.next(), values.next());
        // HTTP/2 has the name in the URI, and HTTP/1.1 may have both.
        let authority = uri.authority().map(hyper::http::uri::Authority::as_str);
        let is_ours = |name: &str| host_of(name).is_some_and(|host| self.is_ours(host));
        let is_named = first.is_some() || authority.is_some();
        is_named
            // Of two values, something behind raincheck could take the other one.
            && second.is_none()
            && first.is_none_or(|value| value.to_str().is_ok_and(is_ours))
            && authority.is_none_or(is_ours)
    }

    /// Returns `true` if only programs of this machine use this listener, as far as can be known: each of its names is a name
    /// of this machine.
    pub(in crate::downstream) fn are_local(&self) -> bool {
        self.address.is_loopback() && self.public_path.is_none() && self.hosts.is_empty()
    }

    /// Returns `true` if `Origin` may call this listener. Only browsers send it. They leave it out of some requests
    /// of foreign pages, which `Sec-Fetch-Site` then shows.
    pub(in crate::downstream) fn origin_is_ours(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).iter().peekable();
        if origins.peek().is_none() {
            let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
            return !sites.any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"));
        }
        origins.all(|origin| {
            self.is_listed(origin) || host_of_origin(origin).is_some_and(|host| self.is_ours(host))
        })
    }

    /// Returns `true` if a page of that origin may read answers: it is in `listen.allowed_origins`, or page and
    /// listener are on one machine. The page of another service on this host may call, as before there was CORS, and
    /// reads nothing.
    pub(in crate::downstream) fn may_read(&self, origin: &HeaderValue) -> bool {
        self.is_listed(origin)
            || (self.address.is_loopback() && host_of_origin(origin).is_some_and(is_loopback))
    }

    fn is_listed(&self, origin: &HeaderValue) -> bool {
        let mut listed = self.origins.iter();
        listed.any(|ours| origin.as_bytes().eq_ignore_ascii_case(ours.as_bytes()))
    }

    fn is_ours(&self, host: &str) -> bool {
        is_loopback(host)
            || host.parse::<IpAddr>().is_ok_and(|ip| ip == self.address)
            || self
                .hosts
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(host))
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The host of the origin of a web page.
fn host_of_origin(origin: &HeaderValue) -> Option<&str> {
    let origin = origin.to_str().ok()?;
    let authority = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    authority.and_then(host_of)
}

/// Returns `true` if both are one path: a slash at the end makes no other one.
fn is_one(path: &str, other: &str) -> bool {
    path == other
        || path.strip_suffix('/').unwrap_or(path) == other.strip_suffix('/').unwrap_or(other)
}

/// The host that a request names, safe to be logged: short, and without control characters.
pub(in crate::downstream) fn host_as_written(uri: &Uri, headers: &HeaderMap) -> String {
    let value = headers.get(HOST).map(HeaderValue::as_bytes);
    let authority = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    short_bytes(value.or(authority).unwrap_or_default()).into_owned()
}

/// The host of a valid authority, without port and brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok()
    };
    let port = rest.strip_prefix(':');
    (rest.is_empty() || port.is_some_and(is_port)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            path: "/mcp".into(),
            public_path: None,
            hosts: vec!["mcp.example.com".into(), "192.0.2.9".into()],
            origins: vec!["https://app.example.com".into()],
            address: IpAddr::from([10, 0, 0, 7]),
        }
    }

    #[test]
    fn only_programs_of_this_machine_use_a_loopback_listener_that_has_no_other_name() {
        let alone = Names {
            path: "/mcp".to_owned(),
            public_path: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            address: IpAddr::from([127, 0, 0, 1]),
        };
        assert!(alone.are_local());
        let others = [
            Names {
                public_path: Some("/".to_owned()),
                ..alone.clone()
            },
            Names {
                hosts: vec!["mcp.example".to_owned()],
                ..alone.clone()
            },
            Names {
                address: IpAddr::from([0, 0, 0, 0]),
                ..alone
            },
        ];
        for names in others {
            assert!(!names.are_local(), "{names:?}");
        }
    }

    #[test]
    fn only_our_names_open_the_door() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            names().host_is_ours(&Uri::from_static("/mcp"), &headers)
        };
        for ours in [
            "localhost",
            "localhost:8440",
            "127.0.0.1:1",
            "[::1]:8440",
            "10.0.0.7",
            "192.0.2.9:80",
            "MCP.example.com:443",
        ] {
            assert!(check(ours), "{ours}");
        }
        for evil in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.8",
            "127.0.0.1.nip.io",
            "",
            "[::1",
            "[::1]evil.example",
            "[::1]:8440:80",
            "localhost:evil.example",
            "localhost:80@evil.example",
            "localhost:",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "evil@localhost",
        ] {
            assert!(!check(evil), "{evil}");
        }
    }

    #[test]
    fn a_name_is_ours_wherever_it_is_written() {
        let check = |uri: &'static str, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            names().host_is_ours(&Uri::from_static(uri), &headers)
        };
        assert!(check("http://localhost/mcp", &[]));
        assert!(check("http://localhost/mcp", &["127.0.0.1:1"]));
        assert!(!check("http://evil.example/mcp", &["localhost"]));
        assert!(!check("http://localhost/mcp", &["evil.example"]));
        assert!(!check("/mcp", &["localhost", "localhost"]));
        assert!(!check("/mcp", &[]));
    }

    #[test]
    fn a_name_that_is_told_of_is_short_and_printable() {
        let told = |host: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_bytes(host).unwrap());
            host_as_written(&Uri::from_static("/mcp"), &headers)
        };
        assert_eq!(told(b"tools.example:1"), "tools.example:1");
        assert_eq!(told(b"a\tb\xff"), "a\u{fffd}b\u{fffd}");
        assert_eq!(told(&[b'x'; 1000]).len(), 120);
        let over_http2 = Uri::from_static("http://evil.example/mcp");
        assert_eq!(
            host_as_written(&over_http2, &HeaderMap::new()),
            "evil.example"
        );
    }

    #[test]
    fn only_our_origins_may_ask() {
        let check = |origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ORIGIN, origin.parse().unwrap());
            names().origin_is_ours(&headers)
        };
        assert!(names().origin_is_ours(&HeaderMap::new()));
        for ours in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "https://app.example.com",
        ] {
            assert!(check(ours), "{ours}");
        }
        for evil in [
            "null",
            "http://evil.example",
            "https://localhost.evil.example",
            "file://x",
            "http://app.example.com",
            "http://localhost:evil.example",
            "http://localhost:80 http://evil.example",
            "http://localhost/",
            "http://[::1]x",
        ] {
            assert!(!check(evil), "{evil}");
        }
    }

    #[test]
    fn a_strange_page_says_so_where_it_has_no_origin() {
        let check = |written: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in written {
                headers.append(*name, HeaderValue::from_static(value));
            }
            names().origin_is_ours(&headers)
        };
        assert!(!check(&[("sec-fetch-site", "cross-site")]));
        for ours in ["same-origin", "same-site", "none"] {
            assert!(check(&[("sec-fetch-site", ours)]), "{ours}");
        }
        let origin = ("origin", "https://app.example.com");
        assert!(check(&[("sec-fetch-site", "cross-site"), origin]));
    }

    #[test]
    fn each_door_takes_what_it_knows() {
        for method in [Method::POST, Method::GET, Method::DELETE] {
            assert!(Endpoint::Mcp.takes(&method), "{method}");
        }
        assert!(Endpoint::ProtectedResource.takes(&Method::GET));
        assert!(!Endpoint::ProtectedResource.takes(&Method::POST));
        for method in ["TRACE", "OPTIONS", "HEAD", "PUT", "get", "POST, GET"] {
            let Ok(method) = Method::from_bytes(method.as_bytes()) else {
                continue;
            };
            assert!(!Endpoint::Mcp.takes(&method), "{method}");
        }
    }

    #[test]
    fn every_other_path_is_closed() {
        let endpoint = |path: &str| names().endpoint(&path.parse().unwrap());
        assert_eq!(endpoint("/mcp"), Some(Endpoint::Mcp));
        assert_eq!(endpoint("/mcp?x=1"), Some(Endpoint::Mcp));
        assert_eq!(endpoint("/mcp/?x=1"), Some(Endpoint::Mcp));
        let with_slash = Names {
            path: "/mcp/".into(),
            ..names()
        };
        for path in ["/mcp", "/mcp/"] {
            let found = with_slash.endpoint(&path.parse().unwrap());
            assert_eq!(found, Some(Endpoint::Mcp), "{path}");
        }
        assert_eq!(
            endpoint("/.well-known/oauth-protected-resource"),
            Some(Endpoint::ProtectedResource)
        );
        assert_eq!(
            endpoint("/.well-known/oauth-protected-resource/mcp"),
            Some(Endpoint::ProtectedResource)
        );
        for closed in ["/", "/mcp//", "//mcp", "/mcp/../x", "/metrics", "/%6dcp"] {
            assert_eq!(endpoint(closed), None, "{closed}");
        }
    }
}
