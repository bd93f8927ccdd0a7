//! The headers about the way of a request (`Forwarded`, `X-Forwarded-*`): those of trusted proxies are kept, those of
//! others are removed, and raincheck adds its own.

use std::net::{IpAddr, SocketAddr};

use hyper::Version;
use hyper::header::{HOST, HeaderName, HeaderValue, VIA};
use hyper::http::request::Parts;
use ipnet::IpNet;

use crate::mcp::header_names::is_of_the_way;
use crate::mcp::headers::remove_where;

/// Which proxies are trusted, and which headers raincheck adds.
#[derive(Debug, Clone, Default)]
pub struct ForwardedHeaders {
    /// The networks of trusted proxies, whose headers are kept.
    pub trusted: Vec<IpNet>,
    /// The headers that the server is to have. raincheck adds those of them that are about a request's way.
    pub said: Vec<HeaderName>,
    pub over_tls: bool,
}

const REAL_IP: &str = "x-real-ip";

impl ForwardedHeaders {
    /// Removes the headers that the client may not send, and adds those that the server is to have. Most requests
    /// have neither.
    ///
    /// Returns `true` if the request comes from this machine, and no proxy says that it passed it on.
    pub(super) fn settle(&self, parts: &mut Parts, peer: SocketAddr) -> bool {
        // A socket for both families shows IPv4 peers as mapped IPv6 addresses, which no IPv4 network contains.
        let peer = peer.ip().to_canonical();
        let headers = &mut parts.headers;
        let is_trusted = self.trusted.iter().any(|net| net.contains(&peer));
        let was_passed_on = !is_trusted
            && remove_where(headers, |name| is_of_the_way(name.as_str())) > 0
            || headers.contains_key(VIA);
        // Proxies that say nothing of themselves often speak HTTP/1.0 to what is behind them, and clients never do.
        let may_be_client = parts.version > Version::HTTP_10;
        let is_local =
            peer.is_loopback() && self.trusted.is_empty() && !was_passed_on && may_be_client;
        for name in &self.said {
            // A header that is left came through a trusted proxy, which is nearer to the client.
            if !parts.headers.contains_key(name)
                && let Some(value) = self.say(name, parts, peer)
            {
                parts.headers.insert(name, value);
            }
        }
        is_local
    }

    fn say(&self, name: &HeaderName, parts: &Parts, peer: IpAddr) -> Option<HeaderValue> {
        let proto = if self.over_tls { "https" } else { "http" };
        let value = match name.as_str() {
            "x-forwarded-for" | REAL_IP => peer.to_string(),
            "x-forwarded-proto" => proto.to_owned(),
            "x-forwarded-host" => host(parts)?.to_owned(),
            "forwarded" => {
                let peer = match peer {
                    IpAddr::V4(peer) => peer.to_string(),
                    // An IPv6 address stands in brackets and quotes there (RFC 7239, section 6).
                    IpAddr::V6(peer) => format!("\"[{peer}]\""),
                };
                format!("for={peer};host=\"{}\";proto={proto}", host(parts)?)
            }
            _ => return None,
        };
        HeaderValue::try_from(value).ok()
    }
}

/// The host that the client wrote, which was checked to be a name of raincheck.
fn host(parts: &Parts) -> Option<&str> {
    match parts.headers.get(HOST) {
        Some(host) => host.to_str().ok(),
        None => parts
            .uri
            .authority()
            .map(hyper::http::uri::Authority::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(way: &ForwardedHeaders, peer: &str) -> Vec<String> {
        let request = hyper::Request::builder()
            .header("host", "localhost:8440")
            .header("x-forwarded-for", "192.0.2.66")
            .header("x-forwarded-prefix", "/admin")
            .header("true-client-ip", "192.0.2.66")
            .header("client-ip", "192.0.2.66")
            .header("forwarded", "for=192.0.2.66")
            .header("x-real-ip", "192.0.2.66");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        way.settle(&mut parts, peer.parse().unwrap());
        parts.headers.remove("host");
        let headers = parts.headers.iter();
        let mut headers: Vec<String> = headers
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        headers.sort();
        headers
    }

    #[test]
    fn what_a_client_says_of_its_way_goes_nowhere() {
        let way = ForwardedHeaders::default();
        assert!(settled(&way, "127.0.0.1:9").is_empty());
    }

    #[test]
    fn what_a_trusted_proxy_says_is_kept() {
        let way = ForwardedHeaders {
            trusted: vec!["10.0.0.0/8".parse().unwrap()],
            said: vec![HeaderName::from_static("x-forwarded-proto")],
            over_tls: true,
        };
        assert_eq!(
            settled(&way, "[::ffff:10.1.2.3]:9"),
            [
                "client-ip: 192.0.2.66",
                "forwarded: for=192.0.2.66",
                "true-client-ip: 192.0.2.66",
                "x-forwarded-for: 192.0.2.66",
                "x-forwarded-prefix: /admin",
                "x-forwarded-proto: https",
                "x-real-ip: 192.0.2.66",
            ]
        );
        assert_eq!(settled(&way, "192.0.2.1:9"), ["x-forwarded-proto: https"]);
    }

    #[test]
    fn what_is_asked_for_is_said() {
        let said = [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-real-ip",
            "x-api-key",
        ];
        let way = ForwardedHeaders {
            said: said.map(HeaderName::from_static).to_vec(),
            ..ForwardedHeaders::default()
        };
        assert_eq!(
            settled(&way, "[2001:db8::1]:9"),
            [
                "forwarded: for=\"[2001:db8::1]\";host=\"localhost:8440\";proto=http",
                "x-forwarded-for: 2001:db8::1",
                "x-forwarded-host: localhost:8440",
                "x-forwarded-proto: http",
                "x-real-ip: 2001:db8::1",
            ]
        );
    }
}
