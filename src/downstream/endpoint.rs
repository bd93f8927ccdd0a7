//! The first checks of a request: its path, Host, Origin, method and body. Refuses requests that no part must see,
//! and corrects the headers about the request's way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Once;

use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderValue, ORIGIN, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};
use tracing::{debug, error, warn};

use super::body::Body;
use super::cors;
use super::inbound::access::{self, Endpoint};
use super::outbound::response;
use super::proxy::Proxy;
use crate::base::printable::short_bytes;
use crate::mcp::error::{RpcError, code};

/// The endpoint that a request came to, and `true` if it comes from this machine. `Err`: the answer to a request that no endpoint sees.
pub(super) fn open(
    proxy: &Arc<Proxy>,
    parts: &mut Parts,
    body: &Incoming,
    peer: SocketAddr,
) -> Result<(Endpoint, bool), Box<Response<Body>>> {
    let names = &proxy.settings.names;
    if !names.host_is_ours(&parts.uri, &parts.headers) {
        tell_of_host(parts);
        let error = RpcError::invalid_request(
            "Invalid request: Host is not a name of this server (listen.allowed_hosts)",
        );
        return Err(refused(StatusCode::FORBIDDEN, &error));
    }
    let endpoint = names.endpoint(&parts.uri);
    // Web pages of any origin may read where their users sign in.
    let is_own_metadata = endpoint == Some(Endpoint::ProtectedResource) && proxy.has_own_metadata();
    if !is_own_metadata && !names.origin_is_ours(&parts.headers) {
        tell_of_origin(parts);
        let error = RpcError::invalid_request(
            "Invalid request: Origin is not allowed (listen.allowed_origins)",
        );
        return Err(refused(StatusCode::FORBIDDEN, &error));
    }
    // Before the path is looked at: a page that asks a wrong one can then read the refusal.
    if !is_own_metadata && let Some(allowed) = cors::preflight(names, &parts.method, &parts.headers)
    {
        // The answer to a preflight leaves a body unread, so a request with a body is refused instead.
        framed(parts, body)?;
        return Err(Box::new(allowed));
    }
    // Where raincheck itself asks clients who they are, the server's metadata are not about raincheck's clients.
    let has_metadata = is_own_metadata || (proxy.auth.is_none() && proxy.upstream.has_address());
    let endpoint = endpoint.filter(|endpoint| match endpoint {
        Endpoint::Mcp => true,
        Endpoint::ProtectedResource => has_metadata,
    });
    let endpoint = endpoint.ok_or_else(|| not_here(&proxy.settings.names.path, parts))?;
    let is_preflight = is_own_metadata && parts.method == Method::OPTIONS;
    if !endpoint.takes(&parts.method) && !is_preflight {
        // The body of a refused method is not read, so the connection cannot be used again.
        return Err(Box::new(response::closing(response::not_allowed(
            endpoint.methods(),
        ))));
    }
    framed(parts, body)?;
    if proxy.upstream.has_sent(&parts.headers) {
        tell_of_circle();
        let error = RpcError::internal(
            "This request went in a circle: the server behind raincheck is raincheck itself \
             (upstream.url)",
        );
        return Err(refused(StatusCode::LOOP_DETECTED, &error));
    }
    let is_from_here = proxy.settings.way.settle(parts, peer);
    // Behind a proxy on this machine, all its clients would look like one.
    let is_local = is_from_here && names.are_local();
    Ok((endpoint, is_local))
}

fn refused(status: StatusCode, error: &RpcError) -> Box<Response<Body>> {
    Box::new(response::refusal_and_close(status, error))
}

/// Refuses an unknown path, and names the path of the endpoint: most such requests come from a client whose URL
/// is nearly right.
fn not_here(served: &str, parts: &Parts) -> Box<Response<Body>> {
    let path = short_bytes(parts.uri.path().as_bytes());
    debug!(method = %parts.method, path = &*path, served, "a request was refused for its path");
    // Clients ask these paths by themselves, to find out how to sign in.
    let is_probe = path.starts_with("/.well-known/") || path == "/register";
    if !is_probe {
        tell_of_path(&path, served);
    }
    let text = format!("Not found: MCP is served at {served} (listen.path); end the URL with it");
    let error = RpcError::new(code::INVALID_REQUEST, text);
    Box::new(response::refusal(StatusCode::NOT_FOUND, &error))
}

/// Refuses a body on a GET or DELETE: the body would go nowhere, and a server that got only the head could take the
/// next request for the body. Where a request has `Content-Length` and `Transfer-Encoding`, hyper drops the length and
/// closes the connection after the answer.
///
/// Refuses other codings of the transfer than `chunked`, too. raincheck removes no other coding, and two servers may read
/// such a list in two ways (RFC 9112, 6.1). A body of a known length has none.
fn framed(parts: &Parts, body: &Incoming) -> Result<(), Box<Response<Body>>> {
    let text = if parts.method != Method::POST && !body.is_end_stream() {
        "Invalid request: only a POST has a body"
    } else if body.size_hint().exact().is_none() && !is_chunked_at_most(&parts.headers) {
        "Invalid request: the only Transfer-Encoding that is read is chunked"
    } else {
        return Ok(());
    };
    let error = RpcError::invalid_request(text);
    Err(refused(StatusCode::BAD_REQUEST, &error))
}

/// Returns true if there is no `Transfer-Encoding`, or one that is `chunked` and nothing else.
fn is_chunked_at_most(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Logs a refused Host once in the life of the process, so that such requests cannot fill the log.
fn tell_of_host(parts: &Parts) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let host = access::host_as_written(&parts.uri, &parts.headers);
        warn!(
            host,
            "a request was refused for its Host, and others will be; a name that clients write \
             belongs in listen.allowed_hosts"
        );
    });
}

/// Logs a refused page once in the life of the process. The browser reports only that the page may not read the
/// refusal.
fn tell_of_origin(parts: &Parts) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let origin = parts.headers.get(ORIGIN).map(HeaderValue::as_bytes);
        let origin = short_bytes(origin.unwrap_or_default());
        warn!(
            origin = &*origin,
            "a web page was refused, and others will be; the origin of a page that may call belongs in \
             listen.allowed_origins"
        );
    });
}

/// Logs a refused path once in the life of the process, so that such requests cannot fill the log.
fn tell_of_path(path: &str, served: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        warn!(
            path,
            served,
            "a request was refused for its path, and others will be (at debug, each has a line); clients write \
             the path of listen.path"
        );
    });
}

fn tell_of_circle() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        error!(
            "a request came back to the raincheck that sent it: upstream.url leads here; write \
             the address of the MCP server"
        );
    });
}
