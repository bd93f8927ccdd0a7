//! Names of headers that mislead servers: names that some servers read as another header, and headers about the way of
//! a request.

use std::borrow::Cow;

/// Returns false for a name that some servers read as another header. CGI, WSGI, PHP and older servers make `_` of each
/// dash, and some of each character that is no letter and no digit, so that they read `x_caller` and `x.caller` as
/// `X-Caller`. nginx drops such headers, too. In `Mcp-Param-*` the server itself chooses the rest of the name, and what
/// it could be confused with is another value of the same client.
#[inline]
pub fn has_one_reading(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit();
    name.bytes().all(is_plain) || name.starts_with("mcp-param-")
}

/// Returns the name, in lower case and with dashes, as which such servers read it.
pub fn reading(name: &str) -> Cow<'_, str> {
    if has_one_reading(name) {
        return Cow::Borrowed(name);
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    Cow::Owned(name.chars().map(plain).collect())
}

/// Returns true for headers about the way of a request: who sent it, and to what address. Servers trust such headers
/// because raincheck runs on their own machine.
pub fn is_of_the_way(name: &str) -> bool {
    name.starts_with("x-forwarded-")
        || matches!(
            name,
            "cf-connecting-ip"
                | "cf-connecting-ipv6"
                | "cf-pseudo-ipv4"
                | "client-ip"
                | "do-connecting-ip"
                | "fastly-client-ip"
                | "fly-client-ip"
                | "forwarded"
                | "forwarded-for"
                | "remote-addr"
                | "true-client-ip"
                | "wl-proxy-client-ip"
                | "x-appengine-user-ip"
                | "x-azure-clientip"
                | "x-azure-socketip"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-envoy-external-address"
                | "x-forwarded"
                | "x-original-forwarded-for"
                | "x-original-host"
                | "x-originating-ip"
                | "x-real-ip"
                | "x-remote-addr"
                | "x-remote-ip"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_servers_read_it() {
        for (name, read) in [
            ("x-caller", "x-caller"),
            ("x_caller", "x-caller"),
            ("x.caller", "x-caller"),
            ("x-caller'", "x-caller-"),
            ("content_length", "content-length"),
            ("mcp-session_id", "mcp-session-id"),
            ("mcp-param-tenant_id", "mcp-param-tenant_id"),
            ("mcp_param-tenant", "mcp-param-tenant"),
        ] {
            assert_eq!(reading(name), read);
            assert_eq!(has_one_reading(name), name == read, "{name}");
        }
    }
}
