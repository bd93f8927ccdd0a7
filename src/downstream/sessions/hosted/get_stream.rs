//! The GET stream of a legacy session in front of a modern server: changes at the server, from a subscription
//! there, and raincheck's own messages.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use tokio::time::Interval;

use super::session::Session;
use super::translate;
use super::watch::SessionWatch;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::mailbox::MailReader;
use crate::downstream::subscriptions::at_server::{Change, ServerSubscription, Subscriber};
use crate::mcp::changes::{LISTS, RESOURCE_SUBSCRIPTIONS};
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::sse;

pub(super) async fn answer(proxy: &Arc<Proxy>, by: &Requester, session: Session) -> Response<Body> {
    // Begun first, so that no change of the session is missed.
    let watch = SessionWatch::of(proxy, &session);
    // The newest stream replaces an older one: that the older one is dead is noticed late.
    let pushed = proxy.mailboxes.open(session.key);
    let credentials = by.credentials.clone();
    // A subscription needs the era of the server.
    let _ = proxy.upstream.era_soon(credentials.clone()).await;
    let subscriber = Subscriber {
        proxy: Arc::clone(proxy),
        caller: session.caller,
        credentials,
        capabilities: session.entry.capabilities.get().into(),
    };
    let mut stream_of_session = SessionStream {
        proxy: Arc::clone(proxy),
        session,
        watch,
        // Events on the stream before this one may never have arrived.
        at_server: ServerSubscription::new(subscriber, pushed.replaces),
        pushed,
        beat: comments(),
    };
    stream_of_session.ask();
    let events = stream::unfold(stream_of_session, |mut stream_of_session| async {
        let bytes = stream_of_session.next().await?;
        Some((bytes, stream_of_session))
    });
    response::event_stream(Body::Events(events.boxed()))
}

struct SessionStream {
    proxy: Arc<Proxy>,
    session: Session,
    watch: SessionWatch,
    pushed: MailReader,
    at_server: ServerSubscription,
    beat: Interval,
}

enum WakeReason {
    Closing,
    MailReader(Option<String>),
    Server(Change),
    Look,
    Beat,
}

impl SessionStream {
    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.wake().await {
                // A newer stream of the session has the messages and a subscription of its own, so this one ends.
                WakeReason::Closing | WakeReason::MailReader(None) => return None,
                WakeReason::MailReader(Some(message)) => return Some(sse::event(&message)),
                WakeReason::Beat => return Some(sse::COMMENT),
                WakeReason::Server(Change { method, params }) => {
                    if let Ok(message) = translate::notification(&method, params.as_deref()) {
                        return Some(sse::event(&message));
                    }
                }
                WakeReason::Look => match self.watch.look(&self.proxy, &self.session).await {
                    Ok(Some(session)) => {
                        self.session = session;
                        self.ask();
                    }
                    Ok(None) => return None,
                    // The watch looks again after a pause. Until then the stream keeps what it asked for.
                    Err(_) => {}
                },
            }
        }
    }

    async fn wake(&mut self) -> WakeReason {
        let closing = &self.proxy.closing;
        tokio::select! {
            // Biased, so that a server with many changes delays neither a drain nor the end of the session.
            biased;
            () = closing.cancelled() => WakeReason::Closing,
            message = self.pushed.next() => WakeReason::MailReader(message),
            () = self.watch.changed() => WakeReason::Look,
            change = self.at_server.next() => WakeReason::Server(change),
            _ = self.beat.tick() => WakeReason::Beat,
        }
    }

    /// Asks the server for what the session wants now.
    fn ask(&mut self) {
        let filter = self.wanted();
        self.at_server.ask_for(filter);
    }

    /// Returns the filter for changes of the lists of which the server declares notifications, and of the resources
    /// asked for.
    fn wanted(&self) -> String {
        let caller = *self.session.caller.as_bytes();
        let known = self.proxy.upstream.last_discovered(caller);
        let capabilities = known
            .as_ref()
            .and_then(|known| Object::parse(known.capabilities.get()).ok());
        let mut out = Writer::object();
        for list in LISTS {
            // On a replica that never asked, the server itself leaves out what it does not tell.
            let tells = capabilities.as_ref().is_none_or(|all| {
                let all = all.get_object(list.capability).unwrap_or_default();
                all.get("listChanged")
                    .is_some_and(|raw| raw.get() == "true")
            });
            if tells {
                out.raw(list.filter_key, "true");
            }
        }
        let uris: Vec<String> = self
            .session
            .entry
            .uris
            .iter()
            .map(|uri| quote(uri))
            .collect();
        if !uris.is_empty() {
            out.raw(RESOURCE_SUBSCRIPTIONS, &format!("[{}]", uris.join(",")));
        }
        out.end()
    }
}
