//! HTTP refusals of the wrapped server: what they say, whether the call may have run, and whether the server lost
//! the session.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use serde_json::value::RawValue;

use crate::base::retry_after;
use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::failure_detail::FailureDetail;
use crate::mcp::json::Object;
use crate::mcp::result;
use crate::upstream::http::address::{self, UnfollowedRedirect};
use crate::upstream::http::refusal_text::shown;
use crate::upstream::http::response_body::{ResponseBody, decoded};

/// Texts of servers that do not know the session of a request. The last one is for HTTP+SSE.
const SESSION_WORDS: [&str; 5] = [
    "session",
    "not initialized",
    "not been initialized",
    "before initialization",
    "no transport found",
];

/// The most bytes of an error body that are read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// The values in a request by which the server knows its sender. In the extensions of the answer, so that no text of the
/// server brings them to anybody.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct SentSecrets(pub(in crate::upstream) Vec<HeaderValue>);

/// The head of a refusal, and the beginning of its body.
pub(in crate::upstream) async fn read(response: Response<ResponseBody>) -> (Parts, String) {
    match decoded(response) {
        Ok(response) => {
            let (head, body) = response.into_parts();
            (head, text(body, Vec::new()).await)
        }
        // The status says enough.
        Err((_, response)) => (response.into_parts().0, String::new()),
    }
}

/// The beginning of an error body, as far as it comes. `read`: what was read of it already.
pub(in crate::upstream) async fn text(mut body: ResponseBody, mut read: Vec<u8>) -> String {
    let reading = async {
        while read.len() < ERROR_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            let data = frame.into_data().unwrap_or_default();
            let room = ERROR_BYTES_MAX.saturating_sub(read.len());
            read.extend(data.into_iter().take(room));
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(5), reading).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// The failure that an answer means, if it is no answer of MCP. `text`: its body.
pub(in crate::upstream) fn failure(head: &Parts, text: &str) -> Failure {
    let sent = head.extensions.get::<SentSecrets>();
    let sent = sent.map_or(&[][..], |sent| &sent.0);
    let sent: Vec<&str> = sent.iter().filter_map(|it| it.to_str().ok()).collect();
    let mut said = phrase(head, &sent);
    // With a success, the type of the body shows what is wrong, and the status does not.
    if let Some(kind) = kind(head).filter(|_| head.status.is_success()) {
        said = format!("{said} ({kind})");
    }
    if let Some(pause) = retry_after::long(&head.headers) {
        said = format!("{said} (for {} s)", pause.as_secs());
    }
    let text = shown(text, &sent);
    if let Some(UnfollowedRedirect(place)) = head.extensions.get() {
        said = format!("{said} to {place}, which is not followed (upstream.url)");
    } else if !text.is_empty() {
        let between = if said.is_empty() { "" } else { ": " };
        said = format!("{said}{between}{text}");
    }
    let detail = FailureDetail::Http {
        status: head.status.as_u16(),
        text: said,
    };
    let failure = failure_of(head.status).with_detail(detail);
    // The request met a redirect and ran nothing, although the same status without a known target proves nothing.
    if address::is_of_moved(&head.extensions) {
        return failure.with_effect(SideEffect::None);
    }
    failure
}

/// The words beside the status: those of the server, or those that belong to the number.
fn phrase(head: &Parts, sent: &[&str]) -> String {
    let own = head.extensions.get::<ReasonPhrase>();
    // The server chooses the phrase, so it may repeat a secret as the body may.
    let own = own.map(|own| shown(&String::from_utf8_lossy(own.as_bytes()), sent));
    let usual = head.status.canonical_reason().unwrap_or_default();
    own.filter(|own| !own.is_empty())
        .unwrap_or_else(|| usual.to_owned())
}

/// The type of the body.
fn kind(head: &Parts) -> Option<String> {
    let kind = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next()?.trim();
    // The server chooses the type, so nothing in it may be markup or a control character.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/+.-".contains(c);
    (kind.len() <= 64 && kind.chars().all(is_plain)).then(|| kind.to_owned())
}

/// The failure that a status means, if the server gave no answer to the call.
fn failure_of(status: StatusCode) -> Failure {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Failure::new(Reason::UpstreamUnauthorized, SideEffect::None)
        }
        status if status.is_success() => Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown),
        status if is_before_the_call(status) => {
            Failure::new(Reason::UpstreamHttp, SideEffect::None)
        }
        _ => Failure::new(Reason::UpstreamHttp, SideEffect::Unknown),
    }
}

/// Returns `true` if servers and gateways send this status before a request reaches its handler. With every other status
/// the call may have run: 408 and 499 end a handler that was slow, 303 redirects a client after a POST was
/// performed, and 409 or 422 is often the handler's own verdict.
fn is_before_the_call(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        400 | 401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 426 | 428 | 429 | 431
    )
}

/// A refusal that may be about the session of its request: the status, and the words of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionRefusal {
    status: u16,
    /// `None`: the refusal is no JSON-RPC error.
    code: Option<i64>,
    words: String,
}

impl SessionRefusal {
    /// Reads the body of a refusal: with status 200 only a JSON-RPC error is one. `None`: it says nothing about a
    /// session.
    pub fn of_body(status: StatusCode, text: &str) -> Option<Self> {
        let error = Object::parse(text)
            .ok()
            .and_then(|message| message.get("error"))
            .filter(|error| result::error_code(error).is_some());
        match error {
            Some(error) => Self::of_error(status.as_u16(), error),
            None if status.is_success() => None,
            None => Self::of_text(status, text),
        }
    }

    /// Reads a refusal without JSON-RPC. `None`: it says nothing about a session.
    pub(in crate::upstream) fn of_text(status: StatusCode, text: &str) -> Option<Self> {
        Self::of(status.as_u16(), None, text)
    }

    /// Reads a JSON-RPC error. `None`: it says nothing about a session.
    pub(in crate::upstream) fn of_error(status: u16, error: &RawValue) -> Option<Self> {
        let message = result::error_message(error).unwrap_or_default();
        Self::of(status, result::error_code(error), &message)
    }

    fn of(status: u16, code: Option<i64>, words: &str) -> Option<Self> {
        let may_be = matches!(status, 404 | 410) || code == Some(LOST) || names_session(words);
        may_be.then(|| Self {
            status,
            code,
            words: words.to_owned(),
        })
    }

    /// Returns `true` if the words speak of a session.
    pub(in crate::upstream) fn names_session(&self) -> bool {
        names_session(&self.words)
    }

    /// Returns `true` if the refusal alone proves that the server does not know the session, and so ran nothing. 404 does for a
    /// request that names a session (2025-11-25, Transports, Session Management), and 400 and 410 do where the words
    /// speak of the session. With any other status the words may be those of a tool.
    pub fn is_certain(&self, has_id: bool) -> bool {
        match (self.status, self.code) {
            // Without a session in the request, 404 may be about the address.
            (404, _) => has_id,
            (400 | 410, None) => has_id && self.names_session(),
            (400 | 410, Some(LOST)) => true,
            (400 | 410, Some(SERVER_ERROR | code::INVALID_REQUEST)) => self.names_session(),
            _ => false,
        }
    }
}

/// The codes of servers that do not know a session.
const LOST: i64 = -32006;
const SERVER_ERROR: i64 = -32000;

/// Returns `true` if a text of the server speaks of its session.
fn names_session(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    SESSION_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_before_the_handler_has_no_effect() {
        let none: Vec<u16> = (300..600)
            .filter(|status| {
                let status = StatusCode::from_u16(*status).unwrap();
                failure_of(status).effect == SideEffect::None
            })
            .collect();
        let expected = [
            400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 426, 428, 429, 431,
        ];
        assert_eq!(none, expected);
    }

    #[test]
    fn a_lost_session_is_named() {
        let status = |status| StatusCode::from_u16(status).unwrap();
        let lost = |number, text: &str| {
            let refusal = SessionRefusal::of_text(status(number), text);
            refusal.map(|refusal| refusal.is_certain(true))
        };
        assert_eq!(lost(404, ""), Some(true));
        for text in [
            "Invalid Session ID",
            "No transport found",
            "Server not initialized",
            "Mcp-Session-Id header is required",
            "{\"detail\":\"unknown session\"}",
        ] {
            for number in [400, 410] {
                assert_eq!(lost(number, text), Some(true), "{text}");
            }
            // The words alone prove nothing.
            for number in [401, 403, 409, 422, 500] {
                assert_eq!(lost(number, text), Some(false), "{text}");
            }
        }
        assert_eq!(lost(400, "Bad Request"), None);
        assert_eq!(lost(500, "oops"), None);
        assert_eq!(lost(410, "Gone"), Some(false));
    }

    #[test]
    fn an_error_proves_what_its_code_and_its_status_say() {
        let lost = |status, code: i64, message: &str| {
            let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
            let error = RawValue::from_string(error).unwrap();
            let refusal = SessionRefusal::of_error(status, &error);
            refusal.map(|refusal| refusal.is_certain(true))
        };
        for (status, code, message, expected) in [
            (404, -32600, "Session not found", Some(true)),
            (404, -32001, "", Some(true)),
            (
                400,
                -32000,
                "Bad Request: Server not initialized",
                Some(true),
            ),
            (400, -32006, "gone", Some(true)),
            (410, -32000, "Session expired", Some(true)),
            // A code that tools use, too.
            (400, -32602, "Invalid session ID", Some(false)),
            (400, -32603, "session terminated", Some(false)),
            (401, -32000, "Session expired", Some(false)),
            (500, -32000, "Session expired", Some(false)),
            (200, -32000, "Session expired", Some(false)),
            (200, -32602, "Invalid params", None),
            (500, -32603, "Internal error", None),
        ] {
            assert_eq!(
                lost(status, code, message),
                expected,
                "{status} {code} {message}"
            );
        }
        assert!(
            SessionRefusal::of_text(StatusCode::NOT_FOUND, "")
                .is_some_and(|refusal| !refusal.is_certain(false))
        );
    }
}
