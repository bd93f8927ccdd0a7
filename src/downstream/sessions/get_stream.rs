//! The GET stream of a legacy client: the server's events, unchanged and without those that are for raincheck, and
//! raincheck's own messages.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use tokio_util::sync::CancellationToken;

use super::mailbox::{MailReader, Mailboxes};
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response;
use crate::downstream::passthrough;
use crate::downstream::proxy::Proxy;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::mcp::sse;
use crate::upstream::client_session::{OUR_EVENT_IDS, Unheard};

/// Responds with the stream of a session at a server over HTTP.
pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    by: &Requester,
    parts: Box<Parts>,
) -> Response<Body> {
    let session = proxy
        .upstream
        .client_session(&parts.headers, *by.caller.as_bytes());
    let Some(session) = session else {
        return passthrough::bare(proxy, parts).await;
    };
    let headers = parts.headers.clone();
    let (head, events) = match session.hear(*parts).await {
        Ok(news) => {
            let head = news.head.clone();
            let events = stream::unfold(news, |mut news| async {
                let event = news.next().await?;
                Some((sse::encode(&event), news))
            });
            (Some(head), events.boxed())
        }
        // 405 means that the server has no such stream. The client still needs one, for raincheck's own messages.
        Err(Unheard::Refused(refusal)) if refusal.status() == StatusCode::METHOD_NOT_ALLOWED => {
            (None, stream::pending().boxed())
        }
        // An older stream of the session goes on.
        Err(Unheard::Refused(refusal)) => return passthrough::response(*refusal, None),
        Err(Unheard::Failed(failure)) => return passthrough::unreachable_upstream(&failure, None),
    };
    // This route requires the header, so only an id that is not ASCII text ends here.
    let Some(own_messages) = OwnMessages::of(proxy, by, &headers) else {
        return response::empty(StatusCode::BAD_REQUEST);
    };
    let events = Body::Events(read(events, own_messages, proxy.closing.clone()));
    match head {
        Some(head) => Response::from_parts(head, events),
        None => response::event_stream(events),
    }
}

/// raincheck's own messages for one stream of a session.
pub(super) struct OwnMessages {
    mailboxes: Arc<Mailboxes>,
    key: SessionKey,
    pushed: Option<MailReader>,
    /// A newer stream of the session ends this one.
    gives_way: bool,
}

impl OwnMessages {
    /// `None`: the request names no session.
    pub(super) fn of(proxy: &Arc<Proxy>, by: &Requester, headers: &HeaderMap) -> Option<Self> {
        let key = by.session?;
        // A GET for the rest of a cut POST stream must not take the messages from the session's own stream.
        let resumes = headers.get(LAST_EVENT_ID).is_some_and(is_the_server_s);
        Some(Self::at(&proxy.mailboxes, key, resumes))
    }

    /// The messages of a stream whose server's events go to a newer stream, too.
    pub(super) fn giving_way(mailboxes: &Arc<Mailboxes>, key: SessionKey) -> Self {
        Self {
            gives_way: true,
            ..Self::at(mailboxes, key, false)
        }
    }

    /// Returns `true` if the stream replaced an older one, which may have been dead for a while.
    pub(super) fn replaces(&self) -> bool {
        self.pushed.as_ref().is_some_and(|pushed| pushed.replaces)
    }

    fn at(mailboxes: &Arc<Mailboxes>, key: SessionKey, resumes: bool) -> Self {
        let mut own_messages = Self {
            mailboxes: Arc::clone(mailboxes),
            key,
            pushed: (!resumes).then(|| mailboxes.open(key)),
            gives_way: false,
        };
        own_messages.take_over();
        own_messages
    }

    /// Takes the messages if no other stream of the session is open any more.
    fn take_over(&mut self) {
        if self.pushed.is_none() && !self.mailboxes.is_open(self.key) {
            self.pushed = Some(self.mailboxes.open(self.key));
        }
    }

    /// `None`: the stream ends. Cancel safe.
    async fn next(&mut self) -> Option<String> {
        if let Some(pushed) = &mut self.pushed {
            let message = pushed.next().await;
            if message.is_some() || self.gives_way {
                return message;
            }
            // A newer stream of the session gets the messages.
            self.pushed = None;
        }
        // Pending, and not an end: the events of the server on this stream go on.
        std::future::pending().await
    }
}

fn is_the_server_s(id: &HeaderValue) -> bool {
    !id.as_bytes().starts_with(OUR_EVENT_IDS.as_bytes())
}

/// All events of the stream, until the server's events end or raincheck ends.
pub(super) fn read(
    events: BoxStream<'static, Bytes>,
    own_messages: OwnMessages,
    closing: CancellationToken,
) -> BoxStream<'static, Bytes> {
    let reading = (events, own_messages, comments());
    let said = stream::unfold(reading, |(mut events, mut own_messages, mut beat)| async {
        let event = tokio::select! {
            // Biased, so that a server that sends all the time does not delay raincheck's own messages.
            biased;
            message = own_messages.next() => sse::event(&message?),
            event = events.next() => event?,
            _ = beat.tick() => {
                // Nothing announces the end of another stream of the session, so each beat looks for it.
                own_messages.take_over();
                sse::COMMENT
            }
        };
        Some((event, (events, own_messages, beat)))
    });
    // Polled first, so that such a server does not delay a drain either.
    said.take_until(closing.cancelled_owned()).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Caller;

    #[tokio::test(start_paused = true)]
    async fn what_raincheck_says_goes_to_the_stream_that_is_open() {
        let mailboxes = Arc::default();
        let key = SessionKey::of(&Caller::from_bytes([1; 16]), "s");
        let closing = CancellationToken::new();
        let open = |resumes| {
            let own_messages = OwnMessages::at(&mailboxes, key, resumes);
            read(stream::pending().boxed(), own_messages, closing.clone())
        };
        let mut first = open(false);
        // The rest of a POST takes nothing from it.
        let mut rest = open(true);
        assert!(mailboxes.push(key, "{}".into()));
        assert_eq!(first.next().await, Some(sse::event("{}")));
        drop(first);
        // It is all that is left: it has them from the next beat on.
        assert_eq!(rest.next().await, Some(sse::COMMENT));
        assert!(mailboxes.push(key, "[]".into()));
        assert_eq!(rest.next().await, Some(sse::event("[]")));
        // The newest has them.
        let mut newest = open(false);
        assert!(mailboxes.push(key, "1".into()));
        assert_eq!(newest.next().await, Some(sse::event("1")));
        assert_eq!(rest.next().await, Some(sse::COMMENT));
        closing.cancel();
        assert_eq!(newest.next().await, None);
        assert_eq!(rest.next().await, None);
    }
}
