//! HTTP refusals of the wrapped server: what they say, whether the call may have run, and whether the server lost
//! the session.

use hyper::StatusCode;
use hyper::ext::ReasonPhrase;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::response::Parts;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;
use crate::upstream::http::refusal_text::shown;

/// Texts of servers that do not know the session of a request. The last one is for HTTP+SSE.
const SESSION_WORDS: [&str; 3] = ["session", "not initialized", "no transport found"];

/// The values in a request by which the server knows its sender. In the extensions of the answer, so that no text of the
/// server brings them to anybody.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct SentSecrets(pub(in crate::upstream) Vec<HeaderValue>);

/// The failure that an answer means, if it is no answer of MCP. `text`: its body.
pub(in crate::upstream) fn failure(head: &Parts, text: &str) -> Failure {
    let sent = head.extensions.get::<SentSecrets>();
    let sent = sent.map_or(&[][..], |sent| &sent.0);
    let sent: Vec<&str> = sent.iter().filter_map(|it| it.to_str().ok()).collect();
    let mut said = phrase(head, &sent);
    if let Some(kind) = kind(head).filter(|_| head.status.is_success()) {
        said = format!("{said} ({kind})");
    }
    let text = shown(text, &sent);
    if !text.is_empty() {
        let between = if said.is_empty() { "" } else { ": " };
        said = format!("{said}{between}{text}");
    }
    let detail = FailureDetail::Http {
        status: head.status.as_u16(),
        text: said,
    };
    failure_of(head.status).with_detail(detail)
}

/// The words beside the status: those of the server, or those that belong to the number.
fn phrase(head: &Parts, sent: &[&str]) -> String {
    let own = head.extensions.get::<ReasonPhrase>();
    let own = own.map(|own| shown(&String::from_utf8_lossy(own.as_bytes()), sent));
    let usual = head.status.canonical_reason().unwrap_or_default();
    own.filter(|own| !own.is_empty())
        .unwrap_or_else(|| usual.to_owned())
}

/// The type of the body.
fn kind(head: &Parts) -> Option<String> {
    let kind = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = kind.split(';').next()?.trim();
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

/// Whether servers and gateways send this status before a request reaches its handler. With every other status
/// the call may have run: 408 and 499 end a handler that was slow, 303 redirects a client after a POST was
/// performed, and 409 or 422 is often the handler's own verdict.
fn is_before_the_call(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        400 | 401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 421 | 426 | 428 | 429 | 431
    )
}

/// Whether a refusal without JSON-RPC says that the server does not know the session. 404 always does
/// (2025-11-25, Transports, Session Management). 400 has many meanings, and a call that was refused for another
/// reason must not be sent again.
pub(in crate::upstream) fn is_session_lost(status: StatusCode, text: &str) -> bool {
    status == StatusCode::NOT_FOUND
        || (matches!(status, StatusCode::BAD_REQUEST | StatusCode::GONE) && names_session(text))
}

/// Whether a text of the server speaks of its session.
pub(in crate::upstream) fn names_session(text: &str) -> bool {
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
        let lost = |status, text| is_session_lost(StatusCode::from_u16(status).unwrap(), text);
        assert!(lost(404, ""));
        for text in [
            "Invalid Session ID",
            "No transport found",
            "Server not initialized",
        ] {
            assert!(lost(400, text) && lost(410, text), "{text}");
        }
        assert!(!lost(400, "Bad Request") && !lost(410, "Gone") && !lost(422, "session"));
    }
}
