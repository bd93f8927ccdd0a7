//! An `initialize` of raincheck's own: what it says, over which transport it goes, and how it is refused.

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Writer;
use crate::mcp::version::{LEGACY_NEWEST, LEGACY_UNSAID};
use crate::upstream::credentials::Credentials;
use crate::upstream::failures::Postponed;
use crate::upstream::http::RequestBody;
use crate::upstream::http::cookies::Cookies;
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::no_session::SessionError;
use crate::upstream::port::UpstreamError;
use crate::upstream::translate;

/// The revisions that are offered to a server that refuses [`LEGACY_NEWEST`], the newest first.
const OLDER: [&str; 3] = ["2025-06-18", LEGACY_UNSAID, "2024-11-05"];

/// The most requests after the first: a connection that was used before may be closed, and then a revision refused.
const AGAIN: usize = 2;

/// Returns the revision to offer after a refusal: the newest that it names. A server should answer with a revision of
/// its own (2025-11-25, Lifecycle, Version Negotiation), and some name those in an error instead.
pub(super) fn older(refusal: &str) -> Option<&'static str> {
    // Another date of a text is no revision.
    let is_of_versions = refusal.contains("ersion") || refusal.contains("upported");
    let older = || OLDER.into_iter().find(|older| refusal.contains(older));
    is_of_versions.then(older).flatten()
}

/// The params, with the capabilities that are declared.
pub(super) fn params(version: &str, capabilities: &str) -> String {
    let mut params = Writer::object();
    params
        .str("protocolVersion", version)
        .raw("capabilities", capabilities)
        .raw("clientInfo", &translate::client_info());
    params.end()
}

/// The answer of a server over HTTP.
#[derive(Debug)]
pub(super) struct Initialized {
    pub(super) result: Box<RawValue>,
    /// A server without sessions gives none.
    pub(super) session_id: Option<HeaderValue>,
    pub(super) cookies: Cookies,
}

/// Why a server did not answer with a result.
#[derive(Debug)]
pub(super) enum InitializeError {
    /// The request was not sent, or has no answer that can be understood.
    Failed(Failure),
    /// A JSON-RPC error of the server, with the status that it came with.
    Error(UpstreamError),
    /// An HTTP refusal that is no JSON-RPC error.
    Refused {
        failure: Failure,
        status: StatusCode,
    },
    /// The server is busy. Raincheck asks again after this pause.
    Later(Postponed),
}

impl From<InitializeError> for SessionError {
    fn from(why: InitializeError) -> Self {
        match why {
            InitializeError::Failed(failure) => Self::Failed(failure),
            InitializeError::Error(error) => Self::Error(error),
            InitializeError::Refused { failure, .. } => {
                // An `initialize` runs no tool, whatever the status of the refusal.
                Self::Failed(failure.with_effect(SideEffect::None))
            }
            InitializeError::Later(later) => Self::Later(later),
        }
    }
}

impl InitializeError {
    /// The revision to offer next.
    fn next_version(&self) -> Option<&'static str> {
        match self {
            // The server ended a connection that was used before, and a second session does no harm.
            Self::Failed(failure) if failure.reason == Reason::UpstreamReset => Some(LEGACY_NEWEST),
            Self::Error(error) => older(error.error.get()),
            Self::Refused { failure, .. } => older(&failure.message()),
            Self::Failed(_) | Self::Later(_) => None,
        }
    }
}

/// Asks over Streamable HTTP.
pub(super) async fn post(
    origin: &Origin,
    credentials: Option<&Credentials>,
    capabilities: &str,
) -> Result<Initialized, InitializeError> {
    let mut answer = post_once(origin, credentials, params(LEGACY_NEWEST, capabilities)).await;
    for _ in 0..AGAIN {
        let refused = answer.as_ref().err();
        let Some(version) = refused.and_then(InitializeError::next_version) else {
            break;
        };
        answer = post_once(origin, credentials, params(version, capabilities)).await;
    }
    answer
}

async fn post_once(
    origin: &Origin,
    credentials: Option<&Credentials>,
    params: String,
) -> Result<Initialized, InitializeError> {
    let body = translate::request(&origin.next_id(), "initialize", &params);
    let sent = origin.send(origin.post(credentials), RequestBody::json(body));
    let response = sent.await.map_err(InitializeError::Failed)?;
    let session_id = response.headers().get(SESSION_ID).cloned();
    let cookies = Cookies::set_by(response.headers(), || origin.url());
    let mut messages =
        match http_response::classify_response(response, origin.message_bytes_max).await {
            ResponseKind::Messages(messages) => messages,
            ResponseKind::Error(error) => return Err(InitializeError::Error(error)),
            ResponseKind::Refused {
                failure, status, ..
            } => return Err(InitializeError::Refused { failure, status }),
            ResponseKind::Later(later) => return Err(InitializeError::Later(later)),
        };
    let result = match messages.answer().await {
        Some(Ok(result)) => result,
        Some(Err(error)) => return Err(InitializeError::Error(UpstreamError::in_message(error))),
        None => return Err(InitializeError::Failed(messages.without_words())),
    };
    origin.http.finish(messages.into_body());
    Ok(Initialized {
        result,
        session_id,
        cookies,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_revision_that_a_refusal_names_is_next() {
        for (refusal, next) in [
            (
                r#"{"data":{"supported":["2024-11-05","2025-06-18"],"requested":"2025-11-25"}}"#,
                Some("2025-06-18"),
            ),
            (
                "supported versions: 2025-03-26, 2024-11-05",
                Some("2025-03-26"),
            ),
            ("Unsupported protocol version: 2025-11-25", None),
        ] {
            assert_eq!(older(refusal), next, "{refusal}");
        }
    }
}
