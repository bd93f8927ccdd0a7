//! From `listen.public_url` to the address by which clients know raincheck.

use std::net::IpAddr;

use hyper::Uri;

use super::port::has_right_port;
use super::problem::Problem;
use crate::auth::public::PublicAddress;

/// The address, and its host without port and brackets.
pub(super) fn address(written: &str) -> Result<(PublicAddress, String), Problem> {
    let refused = |text: String| Problem::new("listen.public_url", text);
    let malformed = || {
        refused(format!(
            "{written:?} is not a plain address; write \"https://tools.example.com/mcp\""
        ))
    };
    let url: Uri = written.parse().map_err(|_| malformed())?;
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let scheme = url.scheme_str().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    // Not what the parser makes of it: an address without a path has none.
    let path = written
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"))
        .and_then(|rest| rest.strip_prefix(authority))
        .ok_or_else(malformed)?;
    if host.is_empty()
        || authority.contains('@')
        || !has_right_port(&url)
        || !path.chars().all(plain)
    {
        return Err(malformed());
    }
    let ip = host.parse::<IpAddr>().map(|ip| ip.to_canonical());
    let is_local = host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback());
    match scheme {
        "https" => {}
        "http" if is_local => {}
        "http" => {
            let text = "must begin with \"https\": clients send their tokens there".to_owned();
            return Err(refused(text));
        }
        _ => return Err(malformed()),
    }
    // Scheme and host ignore case, and the path does not.
    let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
    Ok((PublicAddress::new(&origin, path), host.to_ascii_lowercase()))
}
