//! One request for the stream on which a legacy server sends messages of its own.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

use crate::upstream::http::RequestBody;
use crate::upstream::http_response::{self, Messages, ResponseKind};
use crate::upstream::reconnect::is_for_now;
use crate::upstream::sessions::session::ServerSession;

/// The outcome of the request.
pub(in crate::upstream) enum StreamAttempt {
    Stream(Box<Messages>),
    /// The server has no such stream, or none for raincheck.
    Never,
    /// The server does not know the session any more, or has no such stream.
    Unknown,
    Later(Option<Duration>),
}

/// Requests the stream of the session, from now on or after the given event. A server may hold back the head of the
/// response until it has something to send. The future does not keep the session.
pub(in crate::upstream) fn attempt(
    session: &ServerSession,
    after: Option<&HeaderValue>,
) -> impl Future<Output = StreamAttempt> + Send + use<> {
    let request = session.get(after);
    let origin = std::sync::Arc::clone(session.origin());
    let cookies = std::sync::Arc::clone(session.cookies());
    async move {
        // A server that cannot be reached may be back soon and still have the session.
        let Ok(response) = origin.send(request, RequestBody::empty()).await else {
            return StreamAttempt::Later(None);
        };
        cookies.take_in(response.headers(), || origin.url());
        let status = response.status();
        let bytes_max = origin.message_bytes_max;
        let (kind, refusal) = http_response::classify_on_session(response, bytes_max).await;
        match kind {
            ResponseKind::Messages(messages) if messages.is_stream() => {
                StreamAttempt::Stream(messages)
            }
            ResponseKind::Later(later) => StreamAttempt::Later(Some(later.pause)),
            // The server still holds another stream of this session, or a gateway is away.
            _ if is_for_now(status) || status == StatusCode::CONFLICT => StreamAttempt::Later(None),
            _ if status == StatusCode::NOT_FOUND => StreamAttempt::Unknown,
            _ if refusal.is_some_and(|refusal| refusal.names_session()) => StreamAttempt::Unknown,
            ResponseKind::Messages(_) | ResponseKind::Error(_) | ResponseKind::Refused { .. } => {
                StreamAttempt::Never
            }
        }
    }
}
