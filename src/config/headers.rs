//! From sections of headers to headers that every request to the wrapped server, or to a collector of traces, carries.

use std::collections::BTreeMap;

use hyper::header::{HeaderName, HeaderValue};

use super::problem::Problem;
use super::scalar::SecretText;
use super::secret::Secret;
use super::settings_upstream::Header;
use crate::mcp::header_names::{is_of_the_way, reading};

/// Headers that frame a request, belong to a connection, or are MCP's own. `mcp-*` is refused, too.
const RESERVED: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// `section` is where they are written.
pub(super) fn of(
    section: &str,
    written: &BTreeMap<String, SecretText>,
) -> Result<Vec<Header>, Problem> {
    written
        .iter()
        .map(|(name, value)| header(section, name, &value.0))
        .collect()
}

/// Headers that raincheck always decides itself. `proxy-*` and `x-http-*` are refused, too.
const NEVER: [&str; 6] = [
    "authorization",
    "via",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "idempotency-key",
];

/// Reads the client headers that go to a server on another machine.
pub(super) fn forwarded(written: &[String]) -> Result<Vec<HeaderName>, Problem> {
    let named = written.iter().map(|name| {
        let refused = |text: String| {
            Err(Problem::new(
                "upstream.forward_headers",
                format!("{name:?} {text}"),
            ))
        };
        let Ok(parsed) = name.parse::<HeaderName>() else {
            return refused("is not the name of a header; write \"x-api-key\"".into());
        };
        if parsed.as_str() != name {
            return refused(format!("must be in lower case: {:?}", parsed.as_str()));
        }
        if name == "authorization" {
            return refused(
                "goes where upstream.credentials says: set upstream.same_resource = true if the server and \
                 raincheck are one resource, or set upstream.headers.authorization"
                    .into(),
            );
        }
        if is_ours(name) {
            return refused("belongs to HTTP, to MCP or to raincheck; take it out".into());
        }
        one_reading(name).map_err(|text| Problem::new("upstream.forward_headers", text))?;
        Ok(parsed)
    });
    named.collect()
}

/// Returns `true` if raincheck alone decides about this header.
pub(super) fn is_ours(name: &str) -> bool {
    let mut beginnings = ["mcp-", "proxy-", "x-http-"].iter();
    RESERVED.contains(&name)
        || NEVER.contains(&name)
        || beginnings.any(|begin| name.starts_with(begin))
}

/// Refuses a name that some servers read as a header about which raincheck alone decides.
pub(super) fn one_reading(name: &str) -> Result<(), String> {
    let read = reading(name);
    let is_taken = *read != *name && (is_ours(&read) || is_of_the_way(&read));
    if !is_taken {
        return Ok(());
    }
    Err(format!(
        "{name:?} is read as {read:?} by servers that make one character of all signs, and raincheck alone decides \
         about that header; take it out"
    ))
}

fn header(section: &str, name: &str, value: &Secret) -> Result<Header, Problem> {
    let refused = |text: &str| Problem::new(format!("{section}.{name}"), text);
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| refused("is not the name of a header; write \"x-api-key\""))?;
    // Two spellings of one header would be two settings.
    if parsed.as_str() != name {
        let text = format!("write it in lower case: {:?}", parsed.as_str());
        return Err(refused(&text));
    }
    // Servers that make one character of all signs would read the name as one of these headers.
    let read = reading(name);
    if RESERVED.contains(&&*read) || read.starts_with("mcp-") {
        return Err(refused(
            "belongs to HTTP or to MCP, and raincheck sets it for each request; take it out",
        ));
    }
    // The value is not quoted: it is a secret.
    let text = value.expose();
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !plain || HeaderValue::from_str(text).is_err() {
        return Err(refused(
            "cannot be sent: a header is one line of ASCII, without control characters",
        ));
    }
    if text.trim().is_empty() {
        return Err(refused("is empty; write a value, or take it out"));
    }
    if text.trim() != text {
        return Err(refused("begins or ends with a space; take it out"));
    }
    Ok(Header {
        name: parsed,
        value: value.clone(),
    })
}
