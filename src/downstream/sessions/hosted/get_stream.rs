//! The GET stream of a legacy session in front of a modern server: changes at the server, from a subscription
//! there, and raincheck's own messages.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Response;

use super::session::Session;
use super::translate;
use super::watch::SessionWatch;
use crate::base::unfold::Unfold;
use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions::get_stream::{OwnMessages, read};
use crate::downstream::subscriptions::at_server::{Change, ServerSubscription, Subscriber};
use crate::mcp::changes::{LISTS, RESOURCE_SUBSCRIPTIONS};
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::sse;

pub(super) async fn answer(proxy: &Arc<Proxy>, by: &Requester, session: Session) -> Response<Body> {
    // Begun first, so that no change of the session is missed.
    let watch = SessionWatch::of(proxy, &session);
    // The newest stream replaces an older one: that the older one is dead is noticed late.
    let own_messages = OwnMessages::giving_way(&proxy.mailboxes, session.key);
    let credentials = by.credentials.clone();
    // A subscription needs the era of the server.
    let _ = proxy.upstream.era_soon(credentials.clone()).await;
    let subscriber = Subscriber {
        proxy: Arc::clone(proxy),
        caller: session.caller,
        credentials,
        capabilities: session.entry.capabilities.get().into(),
    };
    let mut changes = SessionChanges {
        proxy: Arc::clone(proxy),
        session,
        watch,
        // Events on the stream before this one may never have arrived.
        at_server: ServerSubscription::new(subscriber, own_messages.replaces()),
    };
    changes.ask();
    let events = read(changes.into_stream(), own_messages, proxy.closing.clone());
    response::event_stream(Body::Events(events))
}

/// The changes at the server that a session is notified of.
struct SessionChanges {
    proxy: Arc<Proxy>,
    session: Session,
    watch: SessionWatch,
    at_server: ServerSubscription,
}

impl Unfold for SessionChanges {
    type Item = Bytes;

    /// `None`: the session has ended.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                // Biased, so that a server with many changes does not delay the end of the session.
                biased;
                () = self.watch.changed() => match self.watch.look(&self.proxy, &self.session).await {
                    Ok(Some(session)) => {
                        self.session = session;
                        self.ask();
                    }
                    Ok(None) => return None,
                    // The watch looks again after a pause. Until then the stream keeps what it asked for.
                    Err(_) => {}
                },
                Change { method, params } = self.at_server.next() => {
                    if let Ok(message) = translate::notification(&method, params.as_deref()) {
                        return Some(sse::event(&message));
                    }
                }
            }
        }
    }
}

impl SessionChanges {
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
