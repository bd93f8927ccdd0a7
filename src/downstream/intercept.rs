//! Which requests raincheck reads, and whether they are what they say: pure.
//!
//! The order of the checks is the specification's: message, `_meta`, protocol version, `Mcp-Method`,
//! `Mcp-Name`; capability and params are the method's own business.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

use crate::mcp::error::{RpcError, code};
use crate::mcp::headers;
use crate::mcp::json::{Object, Writer};
use crate::mcp::meta::{Meta, PROTOCOL_VERSION};
use crate::mcp::request::{Message, Refused, Request};
use crate::mcp::scan::scan;
use crate::mcp::version::{Era, MODERN, era_of};

/// The era that the headers alone speak of; `None` where the body must be looked at.
pub(super) fn era_by_headers(headers: &HeaderMap) -> Option<Era> {
    match headers
        .get(headers::PROTOCOL_VERSION)
        .and_then(|value| value.to_str().ok())
    {
        Some(version) if era_of(version.trim()) == Era::Modern => Some(Era::Modern),
        // Only a legacy client has a session.
        Some(_) if headers.contains_key(headers::SESSION_ID) => Some(Era::Legacy),
        Some(_) | None => None,
    }
}

/// The era that the body speaks of: modern where `_meta` names a protocol version.
pub(super) fn era_by_body(body: &[u8]) -> Era {
    let names_version = || {
        let object = Object::parse(std::str::from_utf8(body).ok()?).ok()?;
        object
            .get_object("params")?
            .get_object("_meta")?
            .get(PROTOCOL_VERSION)
    };
    if names_version().is_some() {
        Era::Modern
    } else {
        Era::Legacy
    }
}

/// A modern request whose envelope is in order.
#[derive(Debug)]
pub(super) struct Modern<'a> {
    pub(super) request: Request<'a>,
    pub(super) meta: Meta<'a>,
}

/// What a modern message is.
#[derive(Debug)]
pub(super) enum Intercepted<'a> {
    Request(Box<Modern<'a>>),
    Notification,
}

pub(super) fn modern<'a>(body: &'a [u8], headers: &HeaderMap) -> Result<Intercepted<'a>, Refused> {
    let text = scan(body).map_err(|fault| Refused {
        id: None,
        error: RpcError::new(code::PARSE, format!("Parse error: {fault}")),
    })?;
    let Message::Request(request) = Message::parse(text)? else {
        return Ok(Intercepted::Notification);
    };
    match envelope(&request, headers) {
        Ok(meta) => Ok(Intercepted::Request(Box::new(Modern { request, meta }))),
        Err(error) => Err(Refused {
            id: Some(request.id.to_owned()),
            error,
        }),
    }
}

fn envelope<'a>(request: &Request<'a>, headers: &HeaderMap) -> Result<Meta<'a>, RpcError> {
    let meta = Meta::of(&request.params)?;
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

/// A header that may stand only once, without the space around its value.
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

/// What a legacy server can be asked in the words of revision 2026-07-28. Its other methods were
/// removed there (`initialize`, `ping`, `logging/setLevel`, `resources/subscribe`), or never were.
pub(super) fn is_translated(method: &str) -> bool {
    matches!(
        method,
        "completion/complete"
            | "prompts/get"
            | "prompts/list"
            | "resources/list"
            | "resources/read"
            | "resources/templates/list"
            | "tools/call"
            | "tools/list"
    )
}
