//! The allowed destinations of webhooks, as far as the address itself shows. The address to which a name leads is
//! checked at each attempt. Pure.

use std::net::{IpAddr, Ipv4Addr};

use hyper::Uri;

use crate::net::public_address::is_public;

/// Why no webhook goes to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationError {
    /// It must be https.
    Unencrypted,
    /// It is an address of this machine or its network.
    Private,
    /// It is a number in another form than `1.2.3.4`: programs disagree about what it means.
    Unusual,
}

/// `allow_private`: receivers may be in the operator's own network, and only there http is enough.
pub fn check(url: &Uri, allow_private: bool) -> Result<(), DestinationError> {
    let is_encrypted = url.scheme_str() == Some("https");
    if !is_encrypted && !allow_private {
        return Err(DestinationError::Unencrypted);
    }
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match known_address(host)? {
        Some(ip) if !is_public(ip) && !allow_private => Err(DestinationError::Private),
        Some(ip) if is_public(ip) && !is_encrypted => Err(DestinationError::Unencrypted),
        Some(_) | None => Ok(()),
    }
}

/// Returns the address that the host itself contains.
fn known_address(host: &str) -> Result<Option<IpAddr>, DestinationError> {
    if let Ok(address) = host.parse() {
        return Ok(Some(address));
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    // These names lead to this machine, whatever a resolver answers (RFC 6761).
    if host == "localhost" || host.ends_with(".localhost") {
        return Ok(Some(Ipv4Addr::LOCALHOST.into()));
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        return Err(DestinationError::Unusual);
    }
    Ok(None)
}
