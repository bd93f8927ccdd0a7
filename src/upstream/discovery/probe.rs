//! Finds out which era the wrapped server speaks, by a modern request.

use std::time::Duration;

use futures_util::future::{Either, select};
use hyper::StatusCode;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::headers::METHOD;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::Object;
use crate::mcp::result;
use crate::mcp::version::{Era, MODERN};
use crate::upstream::credentials::Credentials;
use crate::upstream::discovery::discovered::DiscoverError;
use crate::upstream::discovery::legacy_sessions::{self, SessionsAnswer};
use crate::upstream::http::RequestBody;
use crate::upstream::http::origin::{FIRST_WORDS, Origin};
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::obstacle::Obstacle;
use crate::upstream::port::UpstreamError;
use crate::upstream::translate;

/// A server that does not answer `server/discover` for this long is sent `initialize`, too.
const SILENCE: Duration = Duration::from_secs(3);

/// Why the era is not known.
#[derive(Debug)]
pub(in crate::upstream) enum Undecided {
    Failed(Failure),
    Unauthorized(UpstreamError),
}

/// The meaning of the answer to a POST.
#[derive(Debug)]
pub(in crate::upstream) enum Found {
    Era(Era),
    /// An error that a failing server gives as well as a legacy one.
    Trouble,
    /// A refusal without a JSON-RPC message: the server may not take POSTs here at all.
    NoPosts,
    /// A success or a redirect without a message of MCP: probably no MCP server.
    NoMessage,
    /// Another refusal without a JSON-RPC message, as legacy servers give it.
    Refused,
    /// A failure without a message of MCP: of a server that is failing or not up yet, or of a legacy one that takes the
    /// request badly.
    Failing(Failure),
}

/// Sends `server/discover`. A server that does not answer as a modern one is legacy (streamable-http, Backward
/// Compatibility). A server that serves both eras is modern.
pub(in crate::upstream) async fn probe(
    origin: &Origin,
    credentials: Option<&Credentials>,
) -> Result<Found, Undecided> {
    let asking = async {
        let mut asked = Box::pin(ask(origin, credentials));
        if let Ok(found) = timeout(SILENCE, &mut asked).await {
            return found;
        }
        // Some legacy servers leave a method that they do not know without an answer.
        let greeting = Box::pin(legacy_sessions::ask_in_time(origin, credentials));
        match select(greeting, asked).await {
            // A server of both eras may only have been starting.
            Either::Left((Some(SessionsAnswer::Taken), asked)) => {
                let found = timeout(SILENCE, asked).await;
                found.unwrap_or(Ok(Found::Era(Era::Legacy)))
            }
            Either::Left((_, asked)) => asked.await,
            Either::Right((found, _)) => found,
        }
    };
    let found = timeout(FIRST_WORDS, asking).await;
    found.map_err(|_| {
        origin.http.obstacles.note(Obstacle::Silent(FIRST_WORDS));
        Undecided::Failed(Failure::new(Reason::UpstreamUnreachable, SideEffect::None))
    })?
}

async fn ask(origin: &Origin, credentials: Option<&Credentials>) -> Result<Found, Undecided> {
    let body = translate::request(
        &origin.next_id(),
        "server/discover",
        &translate::own_params("{}", &[]),
    );
    let head = origin
        .post(credentials)
        .header(PROTOCOL_VERSION, MODERN)
        .header(METHOD, "server/discover");
    let response = match origin.send(head, RequestBody::json(body)).await {
        Ok(response) => response,
        // The server was reached, and ended the connection.
        Err(failure) if failure.effect != SideEffect::None => return Ok(Found::Failing(failure)),
        Err(failure) => return Err(Undecided::Failed(failure)),
    };
    match http_response::classify_response(response, origin.message_bytes_max).await {
        ResponseKind::Messages(mut messages) => Ok(match messages.answer().await {
            Some(Ok(result)) => Found::Era(era_of_result(&result)),
            Some(Err(error)) => found_by(&error),
            None => Found::Era(Era::Legacy),
        }),
        ResponseKind::Error(error) if matches!(error.status, 401 | 403) => {
            Err(Undecided::Unauthorized(error))
        }
        // An error code that only modern servers give proves the era even under a status of trouble.
        ResponseKind::Error(error)
            if StatusCode::from_u16(error.status).is_ok_and(is_of_trouble)
                && era_of_error(&error.error) == Era::Legacy =>
        {
            Ok(Found::Trouble)
        }
        ResponseKind::Error(error) => Ok(found_by(&error.error)),
        ResponseKind::Later(later) => Err(Undecided::Failed(later.failure)),
        // A gateway before a server that is not up yet says nothing about the server. Nor does a server that is
        // busy.
        ResponseKind::Refused {
            failure, status, ..
        } if is_of_trouble(status) && status != StatusCode::INTERNAL_SERVER_ERROR => {
            Err(Undecided::Failed(failure))
        }
        ResponseKind::Refused {
            failure, status, ..
        } if status == StatusCode::INTERNAL_SERVER_ERROR => Ok(Found::Failing(failure)),
        ResponseKind::Refused {
            status: StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
            ..
        } => Ok(Found::NoPosts),
        ResponseKind::Refused { status, .. } if status.is_success() || status.is_redirection() => {
            Ok(Found::NoMessage)
        }
        ResponseKind::Refused { .. } => Ok(Found::Refused),
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

pub(in crate::upstream) fn era_of_result(result: &RawValue) -> Era {
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

/// Returns `true` if only a modern server gives this code. Servers of both eras give -32601 and -32602.
pub(in crate::upstream) fn era_of_error(error: &RawValue) -> Era {
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
