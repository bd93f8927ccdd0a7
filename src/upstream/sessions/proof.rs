//! Proof that a server still has a session. Servers lose sessions and report this in many ways: where a refusal by
//! itself proves nothing, a ping on the session does.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::timeout;

use crate::upstream::http::RequestBody;
use crate::upstream::http::refusal::SessionRefusal;
use crate::upstream::http_response::{self, ResponseKind};
use crate::upstream::request_id::RequestId;
use crate::upstream::sessions::session::ServerSession;
use crate::upstream::translate;

/// The time that a server may take to answer a ping.
const PATIENCE: Duration = Duration::from_secs(10);

/// The outcome of a ping.
enum Pinged {
    Answered,
    Refused(SessionRefusal),
    Unclear,
}

/// Returns `true` if the session can be used: nothing failed on it, or a ping is answered there.
pub(in crate::upstream) async fn is_usable(session: &ServerSession) -> bool {
    if !session.doubt().is_raised() {
        return true;
    }
    let is_answered = matches!(ping(session).await, Pinged::Answered);
    if is_answered {
        session.doubt().clear();
    }
    is_answered
}

/// Returns `true` if a request that was refused in this way did not run, because the server has lost the session.
/// Words alone may come from a tool. They come from the server if a ping, which runs nothing, is refused in the same
/// words.
pub(in crate::upstream) async fn is_lost(
    session: &ServerSession,
    refusal: &SessionRefusal,
) -> bool {
    let has_id = session.has_id();
    if refusal.is_certain(has_id) {
        return true;
    }
    (has_id || refusal.names_session())
        && matches!(ping(session).await, Pinged::Refused(again) if again == *refusal)
}

async fn ping(session: &ServerSession) -> Pinged {
    let pinged = timeout(PATIENCE, ask(session)).await;
    pinged.unwrap_or(Pinged::Unclear)
}

async fn ask(session: &ServerSession) -> Pinged {
    let origin = session.origin();
    // The client numbers its own requests on this session, and the same id twice makes servers hang.
    let id = if session.is_borrowed() {
        RequestId::random()
    } else {
        origin.next_id()
    };
    let body = RequestBody::json(translate::request(&id, "ping", "{}"));
    let Ok(response) = origin.send(session.post(), body).await else {
        return Pinged::Unclear;
    };
    session.heard(&response);
    match http_response::classify_on_session(response, origin.message_bytes_max).await {
        (ResponseKind::Messages(mut messages), _) => {
            let pinged = match messages.answer().await {
                Some(Ok(_)) => Pinged::Answered,
                // Any other error is one of a server that has the session, and perhaps no `ping`.
                Some(Err(error)) => SessionRefusal::of_error(StatusCode::OK.as_u16(), &error)
                    .map_or(Pinged::Answered, Pinged::Refused),
                None => return Pinged::Unclear,
            };
            origin.http.finish(messages.into_body());
            pinged
        }
        (_, Some(refusal)) => Pinged::Refused(refusal),
        (_, None) => Pinged::Unclear,
    }
}
