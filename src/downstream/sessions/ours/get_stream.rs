//! The GET stream of a legacy session in front of a modern server: changes at the server, from a subscription
//! there, and raincheck's own messages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use tokio::sync::broadcast;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::session::Session;
use super::translate;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::keepalive::comments;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::mailbox::MailReader;
use crate::downstream::subscriptions::at_server::{
    Change, LISTS, RESOURCES, ServerSubscription, Subscriber,
};
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::sse;

/// How often the session is read again, because another replica may have changed it.
const LOOK: Duration = Duration::from_secs(5);

pub(super) async fn answer(proxy: &Arc<Proxy>, by: &Requester, session: Session) -> Response<Body> {
    let key = session.key();
    // Subscribed first, so that no change of the session is missed.
    let changes = proxy.our_sessions.changes.subscribe();
    // The newest stream replaces an older one: that the older one is dead is noticed late.
    let pushed = proxy.mailboxes.open(key);
    let credentials = by.credentials.clone();
    // A subscription needs the era of the server.
    let _ = proxy.upstream.era_soon(credentials.clone()).await;
    let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let subscriber = Subscriber {
        proxy: Arc::clone(proxy),
        caller: session.caller,
        credentials,
        capabilities: session.entry.capabilities.get().into(),
    };
    let mut stream_of_session = SessionStream {
        proxy: Arc::clone(proxy),
        session,
        key,
        changes,
        // Events on the stream before this one may never have arrived.
        at_server: ServerSubscription::new(subscriber, pushed.replaces),
        pushed,
        beat: comments(),
        look,
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
    key: SessionKey,
    /// Sessions that were changed or ended here.
    changes: broadcast::Receiver<SessionKey>,
    pushed: MailReader,
    at_server: ServerSubscription,
    beat: Interval,
    look: Interval,
}

enum Woke {
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
                Woke::Closing | Woke::MailReader(None) => return None,
                Woke::MailReader(Some(message)) => return Some(sse::event(&message)),
                Woke::Beat => return Some(sse::COMMENT),
                Woke::Server(Change { method, params }) => {
                    if let Ok(message) = translate::notification(&method, params.as_deref()) {
                        return Some(sse::event(&message));
                    }
                }
                // A store that is away is asked again.
                Woke::Look => match self.session.reload(&self.proxy).await {
                    Ok(Some(session)) => {
                        self.session = session;
                        self.ask();
                    }
                    Ok(None) => return None,
                    Err(_) => {}
                },
            }
        }
    }

    async fn wake(&mut self) -> Woke {
        let closing = &self.proxy.closing;
        tokio::select! {
            biased;
            () = closing.cancelled() => Woke::Closing,
            message = self.pushed.next() => Woke::MailReader(message),
            () = changed(&mut self.changes, self.key) => Woke::Look,
            change = self.at_server.next() => Woke::Server(change),
            _ = self.look.tick() => Woke::Look,
            _ = self.beat.tick() => Woke::Beat,
        }
    }

    /// Asks the server for what the session wants now.
    fn ask(&mut self) {
        let filter = self.wanted();
        self.at_server.ask_for(filter);
    }

    /// Changes of the lists that the server says it tells of, and of the resources asked for.
    fn wanted(&self) -> String {
        let caller = *self.session.caller.as_bytes();
        let known = self.proxy.upstream.last_discovered(caller);
        let capabilities = known
            .as_ref()
            .and_then(|known| Object::parse(known.capabilities.get()).ok());
        let mut out = Writer::object();
        for (kind, key, _) in LISTS {
            // On a replica that never asked, the server itself leaves out what it does not tell.
            let tells = capabilities.as_ref().is_none_or(|all| {
                let all = all.get_object(kind).unwrap_or_default();
                all.get("listChanged")
                    .is_some_and(|raw| raw.get() == "true")
            });
            if tells {
                out.raw(key, "true");
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
            out.raw(RESOURCES, &format!("[{}]", uris.join(",")));
        }
        out.end()
    }
}

/// Resolves when this process changed the session, or when messages about changes were lost. Cancel safe.
async fn changed(changes: &mut broadcast::Receiver<SessionKey>, key: SessionKey) {
    loop {
        match changes.recv().await {
            Ok(changed) if changed != key => {}
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            // Its sender lives as long as the process.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
