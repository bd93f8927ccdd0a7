//! What a listener hears from the wrapped server: opened, lost, and opened again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt as _;
use hyper::header::HeaderValue;
use tokio::time::Instant;

use super::proxy::Shared;
use crate::task::id::Caller;
use crate::upstream::wrapped::{ListenEvent, Listening};

/// How long the acknowledgement waits for the wrapped server's.
const ACKNOWLEDGE_PATIENCE: Duration = Duration::from_secs(2);

/// The pause before a lost upstream leg is opened again: at first, and at most.
pub(super) const REOPEN_PAUSE: Duration = Duration::from_secs(1);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The part of a subscription that the wrapped server serves.
pub(super) struct Leg {
    pub(super) front: Shared,
    pub(super) caller: Caller,
    pub(super) credentials: Option<HeaderValue>,
    pub(super) capabilities: Arc<str>,
    pub(super) filter: Arc<str>,
}

impl Leg {
    pub(super) async fn open_first(&self) -> (Option<Upstream>, Option<String>) {
        if &*self.filter == "{}" {
            return (None, None);
        }
        let mut events = self.open();
        let deadline = Instant::now() + ACKNOWLEDGE_PATIENCE;
        loop {
            match tokio::time::timeout_at(deadline, events.next()).await {
                Ok(Some(ListenEvent::Acknowledged(honoured))) => {
                    let open = Upstream::Open {
                        events,
                        since: Instant::now(),
                        pause: REOPEN_PAUSE,
                    };
                    return (Some(open), Some(honoured));
                }
                // Nothing may come before the acknowledgement.
                Ok(Some(ListenEvent::Notification { .. })) => {}
                Ok(Some(ListenEvent::Ended) | None) => return (None, None),
                // It is heard from the time on at which the server acknowledges it.
                Err(_slow) => return (Some(Upstream::Reopened(events, REOPEN_PAUSE)), None),
            }
        }
    }

    pub(super) fn open(&self) -> Listening {
        self.front.upstream.listen(
            *self.caller.as_bytes(),
            self.credentials.clone(),
            Arc::clone(&self.capabilities),
            Arc::clone(&self.filter),
        )
    }
}

/// The upstream's part of the stream: open, or waiting to be opened again.
pub(super) enum Upstream {
    /// Acknowledged since then, after a pause of that length.
    Open {
        events: Listening,
        since: Instant,
        pause: Duration,
    },
    Lost {
        again: Instant,
        pause: Duration,
    },
    /// Opened again after that pause, and not acknowledged yet: what may have been missed meanwhile is
    /// told once.
    Reopened(Listening, Duration),
}

impl Upstream {
    /// The pause after its end. It grows until the server keeps it open for longer than the last pause.
    pub(super) fn next_pause(&self, now: Instant) -> Duration {
        match self {
            Self::Open { since, pause, .. } if now.saturating_duration_since(*since) > *pause => {
                REOPEN_PAUSE
            }
            Self::Open { pause, .. } | Self::Lost { pause, .. } | Self::Reopened(_, pause) => {
                (*pause * 2).min(REOPEN_PAUSE_MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[test]
    fn the_pause_grows_until_the_server_keeps_a_leg_open() {
        let now = Instant::now();
        let silent = || stream::pending().boxed();
        let mut pause = REOPEN_PAUSE;
        for expected in [2, 4, 8, 16, 30, 30] {
            // Not acknowledged, or ended at once.
            let refused = Upstream::Reopened(silent(), pause).next_pause(now);
            let ended = Upstream::Open {
                events: silent(),
                since: now,
                pause,
            };
            pause = ended.next_pause(now);
            assert_eq!((pause, refused), (Duration::from_secs(expected), pause));
        }
        let kept = Upstream::Open {
            events: silent(),
            since: now,
            pause,
        };
        let later = now + pause + REOPEN_PAUSE;
        assert_eq!(kept.next_pause(later), REOPEN_PAUSE);
    }
}
