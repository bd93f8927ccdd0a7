//! The port in a URL. The parser of URLs takes any digits for a port, and reads one that there is not as none: a request
//! would go to port 80.

use hyper::Uri;

/// Returns `true` if the URL has a port from 1 to 65535, or none.
pub fn has_right_port(url: &Uri) -> bool {
    let Some((authority, host)) = url.authority().zip(url.host()) else {
        return true;
    };
    let place = authority.as_str();
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    match place.strip_prefix(host) {
        Some("") | None => true,
        Some(port) => port
            .strip_prefix(':')
            .and_then(|port| port.parse::<u16>().ok())
            .is_some_and(|port| port != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_there_is_not_is_seen() {
        let is_right = |url: &str| has_right_port(&url.parse().unwrap());
        for right in [
            "http://127.0.0.1/mcp",
            "http://127.0.0.1:1/mcp",
            "http://[::1]:65535/mcp",
            "http://[::1]/mcp",
            "http://a:b@host:80/",
            "/mcp",
        ] {
            assert!(is_right(right), "{right}");
        }
        for wrong in [
            "http://127.0.0.1:99999/mcp",
            "http://127.0.0.1:0/mcp",
            "http://127.0.0.1:/mcp",
            "http://[::1]:65536/mcp",
        ] {
            assert!(!is_right(wrong), "{wrong}");
        }
    }
}
