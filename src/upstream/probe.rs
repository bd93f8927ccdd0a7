//! Which era the wrapped server speaks: asked once, in the modern way.

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;

use super::discovered::DiscoverError;
use super::heard::{self, Heard, Message};
use super::http::RequestBody;
use super::obstacle::Obstacle;
use super::origin::{FIRST_WORDS, Origin};
use super::port::UpstreamError;
use super::translate;
use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::headers::METHOD;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::Object;
use crate::mcp::result;
use crate::mcp::version::{Era, MODERN};

/// Why the era is not known.
#[derive(Debug)]
pub(super) enum Undecided {
    Failed(Failure),
    Unauthorized(UpstreamError),
}

/// What the answer to a POST says.
#[derive(Debug)]
pub(super) enum Found {
    Era(Era),
    /// An error that a server in trouble says as well as a legacy one.
    Trouble,
    /// A refusal, and no word of MCP: the server may want no POST here at all.
    NoPosts,
}

/// Asks `server/discover`. Whatever is no word of a modern server is one of a legacy server
/// (streamable-http, Backward Compatibility); a server that serves both is modern.
pub(super) async fn probe(
    origin: &Origin,
    credentials: Option<&HeaderValue>,
) -> Result<Found, Undecided> {
    let asked = tokio::time::timeout(FIRST_WORDS, ask(origin, credentials)).await;
    asked.map_err(|_| {
        origin.http.obstacles.note(Obstacle::Silent(FIRST_WORDS));
        Undecided::Failed(Failure::new(Reason::UpstreamUnreachable, SideEffect::None))
    })?
}

async fn ask(origin: &Origin, credentials: Option<&HeaderValue>) -> Result<Found, Undecided> {
    let body = translate::request(
        &origin.next_id(),
        "server/discover",
        &translate::own_params("{}", &[]),
    );
    let head = origin
        .post(credentials)
        .header(PROTOCOL_VERSION, MODERN)
        .header(METHOD, "server/discover");
    let response = origin
        .send(head, RequestBody::json(body))
        .await
        .map_err(Undecided::Failed)?;
    match heard::judge(response, origin.message_bytes_max).await {
        Heard::Messages(mut messages) => loop {
            match messages.next().await {
                Ok(Some(Message::Result { result, .. })) => {
                    return Ok(Found::Era(era_of_result(&result)));
                }
                Ok(Some(Message::Error { error, .. })) => {
                    return Ok(found_by(&error));
                }
                Ok(Some(
                    Message::Primed | Message::Request { .. } | Message::Notification { .. },
                )) => {}
                Ok(Some(Message::Unreadable { .. }) | None) | Err(_) => {
                    return Ok(Found::Era(Era::Legacy));
                }
            }
        },
        Heard::Error(error) if matches!(error.status, 401 | 403) => {
            Err(Undecided::Unauthorized(error))
        }
        Heard::Error(error)
            if StatusCode::from_u16(error.status).is_ok_and(is_of_trouble)
                && era_of_error(&error.error) == Era::Legacy =>
        {
            Ok(Found::Trouble)
        }
        Heard::Error(error) => Ok(found_by(&error.error)),
        Heard::Later(_) => Err(Undecided::Failed(Failure::new(
            Reason::UpstreamHttp,
            SideEffect::None,
        ))),
        // A gateway in front of a server that is not up yet says nothing about the server, and nor
        // does a server that is busy or broken.
        Heard::Refused {
            failure, status, ..
        } if is_of_trouble(status) => Err(Undecided::Failed(failure)),
        Heard::Refused {
            status: StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
            ..
        } => Ok(Found::NoPosts),
        Heard::Refused { .. } => Ok(Found::Era(Era::Legacy)),
    }
}

fn is_of_trouble(status: StatusCode) -> bool {
    status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

fn found_by(error: &RawValue) -> Found {
    match result::error_code(error) {
        Some(code::INTERNAL) => Found::Trouble,
        _ => Found::Era(era_of_error(error)),
    }
}

pub(super) fn era_of_result(result: &RawValue) -> Era {
    let object = Object::parse(result.get()).unwrap_or_default();
    let versions = object.get("supportedVersions");
    let versions: Vec<String> = versions
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    if versions.iter().any(|version| version == MODERN) {
        Era::Modern
    } else {
        Era::Legacy
    }
}

/// Only a modern server knows these codes; -32601 and -32602 are everybody's.
pub(super) fn era_of_error(error: &RawValue) -> Era {
    match result::error_code(error) {
        Some(code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY) => Era::Modern,
        Some(code::UNSUPPORTED_VERSION) => {
            let data = Object::parse(error.get())
                .ok()
                .and_then(|error| error.get_object("data"));
            let supported = data.and_then(|data| data.get("supported"));
            if supported.is_some_and(|raw| raw.get().contains(MODERN)) {
                Era::Modern
            } else {
                Era::Legacy
            }
        }
        _ => Era::Legacy,
    }
}

impl From<Undecided> for DiscoverError {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::Failed(failure) => Self::Failed(failure),
            Undecided::Unauthorized(error) => Self::Unauthorized(error),
        }
    }
}
