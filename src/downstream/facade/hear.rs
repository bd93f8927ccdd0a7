//! The GET stream of a session: changes at the server, from a subscription there, and what raincheck
//! itself has to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use hyper::header::HeaderValue;
use tokio::sync::broadcast;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::super::body::Body;
use super::super::inbound::requester::Requester;
use super::super::keep_alive::keep_alive;
use super::super::legacy::pushes::{Pushed, SessionKey};
use super::super::proxy::Shared;
use super::super::reply;
use super::session::Session;
use super::words;
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::{envelope, sse};
use crate::upstream::wrapped::{ListenEvent, Listening};

/// Between looks at a session that another replica may have changed.
const LOOK: Duration = Duration::from_secs(5);

/// Before a lost subscription is begun again: at first, and at most.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The kinds of lists: in capabilities, in a filter, and the notification of a change.
const LISTS: [(&str, &str, &str); 3] = [
    (
        "tools",
        "toolsListChanged",
        "notifications/tools/list_changed",
    ),
    (
        "prompts",
        "promptsListChanged",
        "notifications/prompts/list_changed",
    ),
    (
        "resources",
        "resourcesListChanged",
        "notifications/resources/list_changed",
    ),
];

pub(super) async fn answer(front: &Shared, by: &Requester, session: Session) -> Response<Body> {
    let key = session.key();
    // From here on: what changes meanwhile is heard.
    let changes = front.facade.changes.subscribe();
    // The newest stream is the one: a dead one is noticed late.
    let pushed = front.pushes.open(key);
    let credentials = by.credentials.clone();
    // The server must be known to be modern before it is listened to.
    let _ = front.upstream.era_soon(credentials.clone()).await;
    let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hearing = Hearing {
        front: Arc::clone(front),
        session,
        credentials,
        key,
        changes,
        may_have_missed: pushed.replaces,
        pushed,
        filter: String::new(),
        upstream: Upstream::Silent,
        honoured: None,
        beat: keep_alive(),
        look,
    };
    hearing.listen();
    let events = stream::unfold(hearing, |mut hearing| async {
        let bytes = hearing.next().await?;
        Some((bytes, hearing))
    });
    reply::event_stream(Body::Events(events.boxed()))
}

struct Hearing {
    front: Shared,
    session: Session,
    credentials: Option<HeaderValue>,
    key: SessionKey,
    /// Sessions that were changed or ended here.
    changes: broadcast::Receiver<SessionKey>,
    pushed: Pushed,
    /// What the stream before this one said may never have arrived.
    may_have_missed: bool,
    /// What the server is asked for.
    filter: String,
    upstream: Upstream,
    /// What the server said that it tells of.
    honoured: Option<String>,
    beat: Interval,
    look: Interval,
}

/// The subscription at the server.
enum Upstream {
    /// There is nothing to listen to.
    Silent,
    Open(Listening),
    Lost {
        again: Instant,
        pause: Duration,
    },
    /// Begun again after a loss of that pause: what may have been missed is told once.
    Reopened(Listening, Duration),
}

enum Woke {
    Closing,
    Pushed(Option<String>),
    Upstream(Option<ListenEvent>),
    Reopen(Duration),
    Look,
    Beat,
}

impl Hearing {
    /// The next bytes for the client's socket; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.wake().await {
                Woke::Closing | Woke::Pushed(None) => return None,
                Woke::Pushed(Some(message)) => return Some(sse::event(&message)),
                Woke::Beat => return Some(sse::COMMENT),
                Woke::Upstream(event) => {
                    if let Some(bytes) = self.on_upstream(event) {
                        return Some(bytes);
                    }
                }
                Woke::Reopen(pause) => {
                    self.upstream = Upstream::Reopened(self.open(), pause);
                }
                // A store that is away is asked again.
                Woke::Look => match self.session.reload(&self.front).await {
                    Ok(Some(session)) => {
                        self.session = session;
                        self.listen();
                    }
                    Ok(None) => return None,
                    Err(_) => {}
                },
            }
        }
    }

    async fn wake(&mut self) -> Woke {
        let closing = &self.front.closing;
        tokio::select! {
            biased;
            () = closing.cancelled() => Woke::Closing,
            message = self.pushed.next() => Woke::Pushed(message),
            () = changed(&mut self.changes, self.key) => Woke::Look,
            woke = heard(&mut self.upstream) => woke,
            _ = self.look.tick() => Woke::Look,
            _ = self.beat.tick() => Woke::Beat,
        }
    }

    /// Asks the server for what the session wants now.
    fn listen(&mut self) {
        let filter = self.wanted();
        if filter == self.filter {
            return;
        }
        self.filter = filter;
        self.upstream = if self.filter == "{}" {
            Upstream::Silent
        } else if std::mem::take(&mut self.may_have_missed) {
            Upstream::Reopened(self.open(), PAUSE)
        } else {
            Upstream::Open(self.open())
        };
    }

    fn open(&self) -> Listening {
        self.front.upstream.listen(
            *self.session.caller.as_bytes(),
            self.credentials.clone(),
            self.session.entry.capabilities.get().into(),
            self.filter.as_str().into(),
        )
    }

    /// Changes of the lists that the server says it tells of, and of the resources asked for.
    fn wanted(&self) -> String {
        let caller = *self.session.caller.as_bytes();
        let known = self.front.upstream.last_discovered(caller);
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
            out.raw("resourceSubscriptions", &format!("[{}]", uris.join(",")));
        }
        out.end()
    }

    fn on_upstream(&mut self, event: Option<ListenEvent>) -> Option<Bytes> {
        match event {
            Some(ListenEvent::Notification { method, params }) => {
                let message = words::notification(&method, params.as_deref()).ok()?;
                Some(sse::event(&message))
            }
            Some(ListenEvent::Acknowledged(honoured)) => {
                self.honoured = Some(honoured);
                if !matches!(self.upstream, Upstream::Reopened(..)) {
                    return None;
                }
                if let Upstream::Reopened(events, _) =
                    std::mem::replace(&mut self.upstream, Upstream::Silent)
                {
                    self.upstream = Upstream::Open(events);
                }
                self.changed_meanwhile()
            }
            Some(ListenEvent::Ended) | None => {
                let pause = match &self.upstream {
                    Upstream::Reopened(_, pause) => (*pause * 2).min(PAUSE_MAX),
                    Upstream::Silent | Upstream::Open(_) | Upstream::Lost { .. } => PAUSE,
                };
                let again = Instant::now() + pause;
                self.upstream = Upstream::Lost { again, pause };
                None
            }
        }
    }

    /// One change of everything that the server tells of: any of it may have been missed.
    fn changed_meanwhile(&self) -> Option<Bytes> {
        let honoured = Object::parse(self.honoured.as_deref()?).unwrap_or_default();
        let mut out = Vec::new();
        for (_, key, method) in LISTS {
            if honoured.get(key).is_some_and(|raw| raw.get() == "true")
                && let Ok(message) = words::notification(method, None)
            {
                out.extend_from_slice(&sse::event(&message));
            }
        }
        let uris = honoured.get("resourceSubscriptions");
        let uris: Vec<String> = uris
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for uri in uris {
            let mut params = Writer::object();
            params.str("uri", &uri);
            let updated = envelope::notification("notifications/resources/updated", &params.end());
            out.extend_from_slice(&sse::event(&updated));
        }
        (!out.is_empty()).then(|| out.into())
    }
}

/// Cancel safe.
async fn heard(upstream: &mut Upstream) -> Woke {
    match upstream {
        Upstream::Silent => std::future::pending().await,
        Upstream::Open(events) | Upstream::Reopened(events, _) => {
            Woke::Upstream(events.next().await)
        }
        Upstream::Lost { again, pause } => {
            let pause = *pause;
            tokio::time::sleep_until(*again).await;
            Woke::Reopen(pause)
        }
    }
}

/// Resolves when this session was changed here. Who missed some changes looks as well. Cancel safe.
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
