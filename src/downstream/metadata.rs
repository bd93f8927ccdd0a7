//! The metadata of the protected resource (RFC 9728): raincheck's own where raincheck asks clients who they are, and else
//! the wrapped server's, under the address by which clients know raincheck.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Limited};
use hyper::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::body::Body;
use super::cors;
use super::outbound::response;
use super::passthrough;
use super::proxy::Proxy;
use crate::auth::public::PublicAddress;
use crate::mcp::error::RpcError;

/// Larger metadata of the server are refused.
const BYTES_MAX: usize = 64 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers a request for the metadata.
pub(super) async fn answer(proxy: &Arc<Proxy>, mut parts: Box<Parts>) -> Response<Body> {
    let Some(metadata) = &proxy.settings.metadata else {
        return passthrough::bare(proxy, parts).await;
    };
    if !metadata.issuers.is_empty() {
        let rules = proxy.runner.rules();
        return own(&parts, metadata.document(rules.scopes()));
    }
    // A compressed document could not be edited.
    parts
        .headers
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    edited(&metadata.public, passthrough::bare(proxy, parts).await).await
}

/// raincheck's own metadata. Web pages of any origin may read them: a client needs them before it has a token.
fn own(parts: &Parts, document: String) -> Response<Body> {
    if parts.method == Method::OPTIONS {
        return cors::preflight_of_any(&parts.headers);
    }
    let mut response = Response::new(Body::ready(document));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    cors::expose_to_any(&mut response);
    response
}

async fn edited(public: &PublicAddress, response: Response<Body>) -> Response<Body> {
    if response.status() != StatusCode::OK {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let read = Limited::new(body, BYTES_MAX).collect().await;
    let text = read
        .ok()
        .and_then(|body| String::from_utf8(body.to_bytes().into()).ok());
    let Some(document) = text.and_then(|text| public.rewritten_document(&text)) else {
        let error = RpcError::internal("The server's metadata cannot be read");
        return response::refusal(StatusCode::BAD_GATEWAY, &error);
    };
    // Both describe the server's own bytes, which are changed now.
    for outdated in [CONTENT_LENGTH, ETAG] {
        head.headers.remove(outdated);
    }
    Response::from_parts(head, Body::ready(document))
}

impl Proxy {
    pub(super) fn has_own_metadata(&self) -> bool {
        let metadata = self.settings.metadata.as_ref();
        metadata.is_some_and(|metadata| !metadata.issuers.is_empty())
    }

    /// Puts raincheck's metadata into the wrapped server's challenges, which would else lead clients past raincheck.
    pub(super) fn rewrite_challenges(&self, headers: &mut HeaderMap) {
        let Some(metadata) = &self.settings.metadata else {
            return;
        };
        if !headers.contains_key(WWW_AUTHENTICATE) {
            return;
        }
        let given: Vec<HeaderValue> = headers.get_all(WWW_AUTHENTICATE).iter().cloned().collect();
        // A server may send several challenges: `insert` would keep only the last one.
        headers.remove(WWW_AUTHENTICATE);
        for value in given {
            let rewritten = metadata.public.rewritten_challenge(&value);
            // A challenge without metadata cannot lead a client past raincheck, so it stays as it is.
            headers.append(WWW_AUTHENTICATE, rewritten.unwrap_or(value));
        }
    }
}
