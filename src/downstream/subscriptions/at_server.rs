//! The subscription at the wrapped server for the stream of one client: opened, lost, and opened again
//! with growing pauses.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt as _;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::base::backoff::Backoff;
use crate::downstream::proxy::Proxy;
use crate::mcp::changes::{LISTS, RESOURCE_SUBSCRIPTIONS, RESOURCE_UPDATED};
use crate::mcp::json::{Object, Writer, raw, string};
use crate::task::id::Caller;
use crate::upstream::Credentials;
use crate::upstream::wrapped::{ListenEvent, Listening};

/// The time that a client's stream waits for the server to acknowledge.
const ACKNOWLEDGE_PATIENCE: Duration = Duration::from_secs(2);

/// The pauses before a lost subscription is opened again.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The client that subscribes.
pub(in crate::downstream) struct Subscriber {
    pub(in crate::downstream) proxy: Arc<Proxy>,
    pub(in crate::downstream) caller: Caller,
    pub(in crate::downstream) credentials: Option<Credentials>,
    pub(in crate::downstream) capabilities: Arc<str>,
}

/// A change at the server.
#[derive(Debug)]
pub(in crate::downstream) struct Change {
    pub(in crate::downstream) method: Cow<'static, str>,
    pub(in crate::downstream) params: Option<Box<RawValue>>,
}

/// The subscription of one client's stream at the wrapped server.
pub(in crate::downstream) struct ServerSubscription {
    subscriber: Subscriber,
    /// The filter that the server is asked for, as JSON.
    filter: Arc<str>,
    state: State,
    reopening: Reopening,
    has_gap: bool,
    /// The part of the filter that the server serves, as JSON.
    honoured: Option<String>,
    /// Changes that the client may have missed, and was not notified of yet.
    missed: VecDeque<Change>,
}

/// The pauses grow until the server keeps a subscription open for longer than the last pause.
struct Reopening {
    pauses: Backoff,
    last: Duration,
}

impl Default for Reopening {
    fn default() -> Self {
        Self {
            pauses: PAUSES,
            last: Duration::ZERO,
        }
    }
}

impl Reopening {
    /// Returns the pause after the end of a subscription that was open for that time.
    fn pause(&mut self, age: Duration) -> Duration {
        if age > self.last {
            self.pauses.reset();
        }
        self.last = self.pauses.spread_pause();
        self.last
    }
}

enum State {
    /// The client wants nothing of the server, or the server refused the first request.
    Closed,
    Open {
        events: Listening,
        /// When the server acknowledged; before that, when it was asked.
        since: Instant,
        /// The client may have missed changes before the server acknowledges.
        has_gap: bool,
    },
    /// The subscription is opened again then.
    Lost(Instant),
}

impl ServerSubscription {
    /// A subscription that is not opened yet. `has_gap`: the client may have missed changes before.
    pub(in crate::downstream) fn new(subscriber: Subscriber, has_gap: bool) -> Self {
        Self {
            subscriber,
            filter: "{}".into(),
            state: State::Closed,
            reopening: Reopening::default(),
            has_gap,
            honoured: None,
            missed: VecDeque::new(),
        }
    }

    /// Asks the server for these changes, if they are others than before.
    pub(in crate::downstream) fn ask_for(&mut self, filter: String) {
        if *filter == *self.filter {
            return;
        }
        self.filter = filter.into();
        if &*self.filter == "{}" {
            self.state = State::Closed;
        } else {
            let has_gap = std::mem::take(&mut self.has_gap);
            self.open(has_gap);
        }
    }

    /// Waits a moment for the server to report which part of the filter it serves. A server that refuses at first is
    /// not asked again; the notifications of one that is slow count from the time on at which it acknowledges.
    pub(in crate::downstream) async fn acknowledged(&mut self) -> Option<&str> {
        let deadline = Instant::now() + ACKNOWLEDGE_PATIENCE;
        while self.honoured.is_none()
            && let State::Open {
                events, has_gap, ..
            } = &mut self.state
        {
            match timeout_at(deadline, events.next()).await {
                // A notification may not come before the acknowledgement.
                Ok(Some(ListenEvent::Notification { .. } | ListenEvent::Missed)) => {}
                Ok(Some(ListenEvent::Ended) | None) => self.state = State::Closed,
                Ok(event) => {
                    self.heard(event, Instant::now());
                }
                Err(_slow) => {
                    // Changes before a late acknowledgement may be missed, so the client gets one of each then.
                    *has_gap = true;
                    break;
                }
            }
        }
        self.honoured.as_deref()
    }

    /// Returns the next change for the client. Cancel safe.
    pub(in crate::downstream) async fn next(&mut self) -> Change {
        loop {
            if let Some(missed) = self.missed.pop_front() {
                return missed;
            }
            match &mut self.state {
                // The stream of the client stays open without the server: it may be there for tasks.
                State::Closed => std::future::pending().await,
                State::Open { events, .. } => {
                    let event = events.next().await;
                    if let Some(change) = self.heard(event, Instant::now()) {
                        return change;
                    }
                }
                State::Lost(again) => {
                    sleep_until(*again).await;
                    // Changes while the subscription was lost reached nobody.
                    self.open(true);
                }
            }
        }
    }

    fn open(&mut self, has_gap: bool) {
        let Subscriber {
            proxy,
            caller,
            credentials,
            capabilities,
        } = &self.subscriber;
        let events = proxy.upstream.listen(
            *caller.as_bytes(),
            credentials.clone(),
            Arc::clone(capabilities),
            Arc::clone(&self.filter),
        );
        self.state = State::Open {
            events,
            since: Instant::now(),
            has_gap,
        };
    }

    fn heard(&mut self, event: Option<ListenEvent>, now: Instant) -> Option<Change> {
        match event {
            Some(ListenEvent::Notification { method, params }) => Some(Change {
                method: method.into(),
                params,
            }),
            Some(ListenEvent::Acknowledged(honoured)) => {
                if self.state.acknowledge(now) {
                    self.missed = changes_of(&honoured);
                }
                self.honoured = Some(honoured);
                None
            }
            Some(ListenEvent::Missed) => {
                self.missed = self.honoured.as_deref().map(changes_of).unwrap_or_default();
                None
            }
            Some(ListenEvent::Ended) | None => {
                let pause = self.reopening.pause(self.state.age(now));
                self.state = State::Lost(now + pause);
                None
            }
        }
    }
}

impl State {
    /// The server acknowledged. True where the client may have missed changes before.
    fn acknowledge(&mut self, now: Instant) -> bool {
        match self {
            Self::Open { since, has_gap, .. } => {
                *since = now;
                std::mem::take(has_gap)
            }
            Self::Closed | Self::Lost(_) => false,
        }
    }

    /// Returns the time for which the subscription has been open.
    fn age(&self, now: Instant) -> Duration {
        match self {
            Self::Open { since, .. } => now.saturating_duration_since(*since),
            Self::Closed | Self::Lost(_) => Duration::ZERO,
        }
    }
}

/// One change of everything that the server serves: the client may have missed any of them.
fn changes_of(honoured: &str) -> VecDeque<Change> {
    let honoured = Object::parse(honoured).unwrap_or_default();
    let is_served = |key| honoured.get(key).is_some_and(|raw| raw.get() == "true");
    let lists = LISTS.into_iter().filter(|list| is_served(list.filter_key));
    let lists = lists.map(|list| Change {
        method: list.notification.into(),
        params: None,
    });
    let uris = honoured.get(RESOURCE_SUBSCRIPTIONS);
    let uris: Vec<&RawValue> = uris
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
        .unwrap_or_default();
    let resources = uris.into_iter().filter_map(string).filter_map(|uri| {
        let mut params = Writer::object();
        params.str("uri", &uri);
        Some(Change {
            method: RESOURCE_UPDATED.into(),
            params: Some(raw(params.end()).ok()?),
        })
    });
    lists.chain(resources).collect()
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn open(since: Instant, has_gap: bool) -> State {
        State::Open {
            events: stream::pending().boxed(),
            since,
            has_gap,
        }
    }

    #[test]
    fn the_pause_grows_until_the_server_keeps_a_subscription_open() {
        let now = Instant::now();
        let mut reopening = Reopening::default();
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            let pause = reopening.pause(open(now, false).age(now));
            let expected = Duration::from_secs(expected);
            assert!((expected..=expected * 5 / 4).contains(&pause), "{pause:?}");
        }
        let later = now + Duration::from_mins(1);
        let pause = reopening.pause(open(now, false).age(later));
        assert!(pause < Duration::from_secs(2), "{pause:?}");
    }

    #[test]
    fn what_may_have_been_missed_is_told_once() {
        let now = Instant::now();
        for (has_gap, expected) in [(true, true), (false, false)] {
            let mut state = open(now, has_gap);
            assert_eq!(state.acknowledge(now), expected);
            assert!(!state.acknowledge(now));
        }
        let honoured = r#"{"promptsListChanged":true,"toolsListChanged":false,
            "resourceSubscriptions":["a:\u0062",7]}"#;
        let changes = changes_of(honoured).into_iter();
        let changes = changes.map(|Change { method, params }| {
            let params = params.map(|params| params.get().to_owned());
            (method, params.unwrap_or_default())
        });
        let expected = [
            ("notifications/prompts/list_changed", ""),
            ("notifications/resources/updated", r#"{"uri":"a:b"}"#),
        ];
        let expected = expected.map(|(method, params)| (method.into(), params.to_owned()));
        assert_eq!(changes.collect::<Vec<_>>(), expected);
    }
}
