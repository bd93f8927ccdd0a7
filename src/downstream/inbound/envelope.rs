//! Checks that a modern request matches its headers. Pure.
//!
//! The order of the checks is the specification's: message, `_meta`, protocol version, `Mcp-Method`,
//! `Mcp-Name`; capability and params are the method's own business.

use hyper::HeaderMap;
use hyper::header::{GetAll, HeaderName, HeaderValue};

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
    let version = Mirror::of(headers, &headers::PROTOCOL_VERSION, "MCP-Protocol-Version");
    version.check(&meta.version, "_meta")?;
    if meta.version != MODERN {
        return Err(unsupported_version(&meta.version));
    }
    let method = Mirror::of(headers, &headers::METHOD, "Mcp-Method");
    method.check(&request.method, "the body")?;
    check_name(request, headers)?;
    Ok(meta)
}

/// `Mcp-Name` mirrors a body value. On `tasks/*` real clients omit it, so only a differing one is
/// refused there; `tools/call`, `prompts/get` and `resources/read` must have it.
fn check_name(request: &Request<'_>, headers: &HeaderMap) -> Result<(), RpcError> {
    let header = Mirror::of(headers, &headers::NAME, "Mcp-Name");
    let value = header.value()?;
    let Some(name) = request.name() else {
        return value.map_or(Ok(()), |value| header.text(value).map(drop));
    };
    match value {
        None if request.method.starts_with("tasks/") => Ok(()),
        None => Err(header.mismatch("is missing")),
        Some(value) => match headers::decode(header.text(value)?) {
            Some(decoded) if decoded == name => Ok(()),
            Some(_) => Err(header.mismatch("differs from the body")),
            None => Err(header.mismatch("is malformed")),
        },
    }
}

/// A header that repeats a value of the body. It may occur only once: of two values, the server and raincheck could take
/// different ones.
struct Mirror<'a> {
    values: GetAll<'a, HeaderValue>,
    /// The name as the specification writes it.
    shown: &'static str,
}

impl<'a> Mirror<'a> {
    fn of(headers: &'a HeaderMap, name: &HeaderName, shown: &'static str) -> Self {
        let values = headers.get_all(name);
        Self { values, shown }
    }

    /// Checks that the header has this value. `of`: the place of the value in the message.
    fn check(&self, value: &str, of: &str) -> Result<(), RpcError> {
        match self.value()? {
            Some(found) if found == value.as_bytes() && value.is_ascii() => Ok(()),
            Some(found) => {
                self.text(found)?;
                Err(self.mismatch(&format!("differs from {of}")))
            }
            None => Err(self.mismatch("is missing")),
        }
    }

    /// The value without surrounding space.
    fn value(&self) -> Result<Option<&'a [u8]>, RpcError> {
        let mut values = self.values.iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => Ok(Some(value.as_bytes().trim_ascii())),
            (Some(_), Some(_)) => Err(self.mismatch("is malformed")),
        }
    }

    /// The value as text. A header has no other than visible characters, spaces and tabs.
    fn text<'v>(&self, value: &'v [u8]) -> Result<&'v str, RpcError> {
        let is_plain = |byte: &u8| matches!(byte, 0x20..=0x7e | b'\t');
        let text = str::from_utf8(value).ok();
        text.filter(|_| value.iter().all(is_plain))
            .ok_or_else(|| self.mismatch("is malformed"))
    }

    fn mismatch(&self, what: &str) -> RpcError {
        RpcError::header_mismatch(format!("Header mismatch: {} {what}", self.shown))
    }
}

fn unsupported_version(requested: &str) -> RpcError {
    let mut data = Writer::object();
    data.raw("supported", &format!("[\"{MODERN}\"]"))
        .str("requested", requested);
    RpcError::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data.end())
}
