//! Checks that a modern request matches its headers. Pure.
//!
//! The order of the checks is the specification's: message, `_meta`, protocol version, `Mcp-Method`,
//! `Mcp-Name`; capability and params are the method's own business.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use crate::mcp::error::{RpcError, code};
use crate::mcp::headers;
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::Meta;
use crate::mcp::request::Request;
use crate::mcp::version::{Era, MODERN, era_of};

/// The era that the headers name. `None`: the body must decide.
pub(in crate::downstream) fn era_by_headers(headers: &HeaderMap) -> Option<Era> {
    let version = headers.get(headers::PROTOCOL_VERSION)?.to_str().ok()?;
    // Only a legacy client has a session. Some name a newer version than the one that their session agreed on.
    match (
        era_of(version.trim()),
        headers.contains_key(headers::SESSION_ID),
    ) {
        (Era::Modern, false) => Some(Era::Modern),
        (Era::Legacy, true) => Some(Era::Legacy),
        (Era::Modern, true) | (Era::Legacy, false) => None,
    }
}

/// Checks a request's envelope against its headers.
pub(super) fn check<'a>(
    request: &Request<'a>,
    meta: Option<&Object<'a>>,
    headers: &HeaderMap,
) -> Result<Meta<'a>, RpcError> {
    let meta = Meta::of(meta)?;
    let version =
        single(headers, headers::PROTOCOL_VERSION, "MCP-Protocol-Version")?.ok_or_else(|| {
            RpcError::header_mismatch("Header mismatch: MCP-Protocol-Version is missing")
        })?;
    if *version != *meta.version {
        return Err(RpcError::header_mismatch(
            "Header mismatch: MCP-Protocol-Version differs from _meta",
        ));
    }
    if meta.version != MODERN {
        return Err(unsupported_version(&meta.version));
    }
    let method = single(headers, headers::METHOD, "Mcp-Method")?
        .ok_or_else(|| RpcError::header_mismatch("Header mismatch: Mcp-Method is missing"))?;
    if *method != *request.method {
        return Err(RpcError::header_mismatch(
            "Header mismatch: Mcp-Method differs from the body",
        ));
    }
    check_name(request, headers)?;
    Ok(meta)
}

/// `Mcp-Name` mirrors a body value. On `tasks/*` real clients omit it, so only a differing one is
/// refused there; `tools/call`, `prompts/get` and `resources/read` must have it.
fn check_name(request: &Request<'_>, headers: &HeaderMap) -> Result<(), RpcError> {
    let header = single(headers, headers::NAME, "Mcp-Name")?;
    let Some(name) = request.name() else {
        return Ok(());
    };
    match header {
        None if request.method.starts_with("tasks/") => Ok(()),
        None => Err(RpcError::header_mismatch(
            "Header mismatch: Mcp-Name is missing",
        )),
        Some(header) => match headers::decode(&header) {
            Some(decoded) if decoded == name => Ok(()),
            Some(_) => Err(RpcError::header_mismatch(
                "Header mismatch: Mcp-Name differs from the body",
            )),
            None => Err(RpcError::header_mismatch(
                "Header mismatch: Mcp-Name is malformed",
            )),
        },
    }
}

/// The value of a header that may occur only once, without surrounding space.
fn single<'a>(
    headers: &'a HeaderMap,
    name: HeaderName,
    shown: &'static str,
) -> Result<Option<Cow<'a, str>>, RpcError> {
    let malformed = || RpcError::header_mismatch(format!("Header mismatch: {shown} is malformed"));
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    // Of two values, the server and raincheck could take different ones.
    if values.next().is_some() {
        return Err(malformed());
    }
    let text = HeaderValue::to_str(value).map_err(|_| malformed())?;
    Ok(Some(Cow::Borrowed(text.trim_matches([' ', '\t']))))
}

fn unsupported_version(requested: &str) -> RpcError {
    let mut data = Writer::object();
    data.raw("supported", &format!("[\"{MODERN}\"]"))
        .str("requested", requested);
    RpcError::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data.end())
}
