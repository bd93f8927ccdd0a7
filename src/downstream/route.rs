//! Which door a request came to, and whether it may: path, Host and Origin. Pure.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderValue, ORIGIN};
use hyper::http::Uri;
use hyper::{HeaderMap, Method};

/// The doors of the public listener; every other path is 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Mcp,
    /// OAuth clients read the wrapped server's own metadata (RFC 9728).
    ProtectedResource,
}

impl Door {
    /// What may be asked for there, as `Allow` says it.
    pub(super) fn methods(self) -> &'static str {
        match self {
            Self::Mcp => "POST, GET, DELETE",
            Self::ProtectedResource => "GET",
        }
    }

    /// Other methods have no meaning in MCP, but may have one to the server: TRACE would tell the client
    /// what raincheck sends.
    pub(super) fn takes(self, method: &Method) -> bool {
        let mut methods = self.methods().split(", ");
        methods.any(|known| known == method.as_str())
    }
}

const PROTECTED_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// Names under which this listener may be called, against DNS rebinding.
#[derive(Debug, Clone)]
pub struct Names {
    /// The path of the MCP endpoint.
    pub path: String,
    /// Further values of `Host` without port, beside loopback names and the listen address.
    pub hosts: Vec<String>,
    /// Further values of `Origin`, beside loopback ones.
    pub origins: Vec<String>,
    /// The address that is listened on.
    pub address: IpAddr,
}

impl Names {
    pub(super) fn door(&self, uri: &Uri) -> Option<Door> {
        let path = uri.path();
        if path == self.path {
            return Some(Door::Mcp);
        }
        let rest = path.strip_prefix(PROTECTED_RESOURCE)?;
        (rest.is_empty() || rest == self.path).then_some(Door::ProtectedResource)
    }

    /// A page that rebinds its own name to this address still sends its own name.
    pub(super) fn host_is_ours(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(HOST).iter();
        let (first, second) = (values.next(), values.next());
        let host = match (first, second) {
            (Some(value), None) => value.to_str().ok(),
            // HTTP/2 has it in the authority.
            (None, None) => uri.authority().map(hyper::http::uri::Authority::as_str),
            (_, Some(_)) => None,
        };
        host.is_some_and(|host| self.is_ours(host_of(host)))
    }

    /// Absent for everything but browsers.
    pub(super) fn origin_is_ours(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|value| {
            let Ok(origin) = value.to_str() else {
                return false;
            };
            if self
                .origins
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(origin))
            {
                return true;
            }
            let authority = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            authority.is_some_and(|authority| self.is_ours(host_of(authority)))
        })
    }

    fn is_ours(&self, host: &str) -> bool {
        if host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        if let Ok(ip) = host.parse::<IpAddr>()
            && (ip.is_loopback() || ip == self.address)
        {
            return true;
        }
        self.hosts
            .iter()
            .any(|ours| ours.eq_ignore_ascii_case(host))
    }
}

/// Longer names are cut where they are only told of.
const TOLD_MAX: usize = 120;

/// What a request calls us, safe to be logged: short, and without control characters.
pub(super) fn host_as_written(uri: &Uri, headers: &HeaderMap) -> String {
    let value = headers.get(HOST).map(HeaderValue::as_bytes);
    let authority = uri
        .authority()
        .map(|authority| authority.as_str().as_bytes());
    let host = String::from_utf8_lossy(value.or(authority).unwrap_or_default());
    host.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .take(TOLD_MAX)
        .collect()
}

/// The host of an authority, without port and brackets.
fn host_of(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').map_or("", |(host, _)| host);
    }
    authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            path: "/mcp".into(),
            hosts: vec!["mcp.example.com".into(), "192.0.2.9".into()],
            origins: vec!["https://app.example.com".into()],
            address: IpAddr::from([10, 0, 0, 7]),
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
        ] {
            assert!(!check(evil), "{evil}");
        }
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
        assert_eq!(told(&[b'x'; 1000]).len(), TOLD_MAX);
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
        ] {
            assert!(!check(evil), "{evil}");
        }
    }

    #[test]
    fn every_other_path_is_closed() {
        let door = |path: &str| names().door(&path.parse().unwrap());
        assert_eq!(door("/mcp"), Some(Door::Mcp));
        assert_eq!(door("/mcp?x=1"), Some(Door::Mcp));
        assert_eq!(
            door("/.well-known/oauth-protected-resource"),
            Some(Door::ProtectedResource)
        );
        assert_eq!(
            door("/.well-known/oauth-protected-resource/mcp"),
            Some(Door::ProtectedResource)
        );
        for closed in ["/", "/mcp/", "//mcp", "/mcp/../x", "/metrics", "/%6dcp"] {
            assert_eq!(door(closed), None, "{closed}");
        }
    }
}
