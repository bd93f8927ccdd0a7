//! The GET stream of a legacy client: what the server says there that is no answer to a call of ours,
//! unchanged, and what raincheck says itself.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response, StatusCode};

use tokio_util::sync::CancellationToken;

use super::pushes::{Pushed, Pushes};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response;
use crate::downstream::pass;
use crate::downstream::proxy::Shared;
use crate::mcp::headers::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::sse;
use crate::mcp::version::LEGACY_NEWEST;
use crate::upstream::channel::session::News as LineNews;
use crate::upstream::client_session::{News, OUR_EVENT_IDS, Unheard};

/// What a server says on it.
pub(super) enum Source {
    Web(News),
    Line(LineNews),
    /// The server has no such stream.
    Silent,
}

/// Whether a request asks for a stream that is read here. The sessions of other revisions pass as
/// bytes.
pub(super) fn is_read(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.headers.contains_key(SESSION_ID)
        && parts
            .headers
            .get(PROTOCOL_VERSION)
            .is_some_and(|version| version == LEGACY_NEWEST)
}

/// The stream of a server with sessions of its own.
pub(super) async fn answer(front: &Shared, by: &Requester, parts: Parts) -> Response<Body> {
    let session = front
        .upstream
        .client_session(&parts.headers, *by.caller.as_bytes());
    let Some(session) = session else {
        return pass::bare(front, parts).await;
    };
    let headers = parts.headers.clone();
    let (head, source) = match session.hear(parts).await {
        Ok(news) => (Some(news.head.clone()), Source::Web(news)),
        Err(Unheard::Refused(refusal)) if refusal.status() == StatusCode::METHOD_NOT_ALLOWED => {
            (None, Source::Silent)
        }
        // The stream that is there goes on.
        Err(Unheard::Refused(refusal)) => return pass::response(*refusal),
        Err(Unheard::Failed(failure)) => return pass::unreachable_upstream(failure),
    };
    let Some(place) = Place::of(front, by, &headers) else {
        return response::empty(StatusCode::BAD_REQUEST);
    };
    let events = Body::Events(read(source, place, front.closing.clone()));
    match head {
        Some(head) => Response::from_parts(head, events),
        None => response::event_stream(events),
    }
}

/// Where raincheck's own messages for a session are said.
pub(super) struct Place {
    pushes: Arc<Pushes>,
    key: SessionKey,
    pushed: Option<Pushed>,
}

impl Place {
    /// `None`: the session is not named.
    pub(super) fn of(front: &Shared, by: &Requester, headers: &HeaderMap) -> Option<Self> {
        let key = by.session?;
        // The rest of a cut POST is asked for in the same way, and takes nothing from the stream that
        // is there.
        let resumes = headers.get(LAST_EVENT_ID).is_some_and(is_the_server_s);
        Some(Self::at(&front.pushes, key, resumes))
    }

    fn at(pushes: &Arc<Pushes>, key: SessionKey, resumes: bool) -> Self {
        let mut place = Self {
            pushes: Arc::clone(pushes),
            key,
            pushed: (!resumes).then(|| pushes.open(key)),
        };
        place.take_over();
        place
    }

    /// Where no other stream of the session is open any more, they are said here.
    fn take_over(&mut self) {
        if self.pushed.is_none() && !self.pushes.is_open(self.key) {
            self.pushed = Some(self.pushes.open(self.key));
        }
    }

    /// Cancel safe.
    async fn next(&mut self) -> String {
        if let Some(pushed) = &mut self.pushed {
            if let Some(message) = pushed.next().await {
                return message;
            }
            // Another stream took its place.
            self.pushed = None;
        }
        std::future::pending().await
    }
}

fn is_the_server_s(id: &HeaderValue) -> bool {
    !id.as_bytes().starts_with(OUR_EVENT_IDS.as_bytes())
}

/// All that is said, until the server's stream ends or raincheck does.
pub(super) fn read(
    source: Source,
    place: Place,
    closing: CancellationToken,
) -> BoxStream<'static, Bytes> {
    let reading = (source, place, comments(), closing);
    let said = stream::unfold(reading, |reading| async {
        let (mut source, mut place, mut beat, closing) = reading;
        let event = tokio::select! {
            biased;
            () = closing.cancelled() => return None,
            message = place.next() => sse::event(&message),
            event = source.next() => event?,
            _ = beat.tick() => {
                place.take_over();
                sse::COMMENT
            }
        };
        Some((event, (source, place, beat, closing)))
    });
    said.boxed()
}

impl Source {
    /// Cancel safe. `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Web(news) => news.next().await.map(|event| sse::encode(&event)),
            Self::Line(news) => news.next().await.map(|message| sse::event(&message)),
            Self::Silent => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    #[tokio::test(start_paused = true)]
    async fn what_raincheck_says_goes_to_the_stream_that_is_open() {
        let pushes = Arc::default();
        let key = SessionKey::of(&Caller::from_bytes([1; 16]), "s");
        let closing = CancellationToken::new();
        let open = |resumes| {
            let place = Place::at(&pushes, key, resumes);
            read(Source::Silent, place, closing.clone())
        };
        let mut first = open(false);
        // The rest of a POST takes nothing from it.
        let mut rest = open(true);
        assert!(pushes.push(key, "{}".into()));
        assert_eq!(first.next().await, Some(sse::event("{}")));
        drop(first);
        // It is all that is left: it has them from the next beat on.
        assert_eq!(rest.next().await, Some(sse::COMMENT));
        assert!(pushes.push(key, "[]".into()));
        assert_eq!(rest.next().await, Some(sse::event("[]")));
        // The newest has them.
        let mut newest = open(false);
        assert!(pushes.push(key, "1".into()));
        assert_eq!(newest.next().await, Some(sse::event("1")));
        assert_eq!(rest.next().await, Some(sse::COMMENT));
        closing.cancel();
        assert_eq!(newest.next().await, None);
        assert_eq!(rest.next().await, None);
    }
}
