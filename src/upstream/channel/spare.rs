//! A process of the server that runs before it is needed, so that it is started once: it is asked for
//! the era, and whoever comes first goes on with it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::mouth::{Ear, End, Mouth, Passage, Refusal};
use super::requests::Channel;
use crate::lock::Mutex;
use crate::mcp::version::Era;
use crate::upstream::heard::Message;

/// What the process says, until somebody goes on with it and ever after.
pub(super) struct Lobby {
    first: Arc<Channel>,
    next: OnceLock<Arc<dyn Ear>>,
    /// That it ends and that it is handed over do not happen at the same time.
    handing: Mutex<()>,
}

impl Lobby {
    pub(super) fn new(first: Arc<Channel>) -> Arc<Self> {
        Arc::new(Self {
            first,
            next: OnceLock::new(),
            handing: Mutex::default(),
        })
    }

    /// Where it is asked what it is.
    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.first
    }

    fn ear(&self) -> &dyn Ear {
        match self.next.get() {
            Some(next) => &**next,
            None => &*self.first,
        }
    }

    /// From now on it is that ear's. `None`: it has ended.
    pub(super) fn hand_over<E: Ear>(
        &self,
        ear: impl FnOnce(Mouth, &Channel) -> Arc<E>,
    ) -> Option<Arc<E>> {
        let _one = self.handing.lock();
        if !self.first.is_open() {
            return None;
        }
        let ear = ear(self.first.mouth().clone(), &self.first);
        let next: Arc<dyn Ear> = Arc::<E>::clone(&ear);
        self.next.set(next).ok()?;
        Some(ear)
    }
}

impl Ear for Lobby {
    fn heard(&self, message: Message, text: &str) {
        self.ear().heard(message, text);
    }

    fn refused(&self, passage: Option<&Arc<Passage>>, refusal: Refusal) {
        self.ear().refused(passage, refusal);
    }

    fn over(&self, end: End) {
        let _one = self.handing.lock();
        self.ear().over(end);
    }
}

/// A process that nobody uses yet.
pub(super) struct Spare {
    pub(super) lobby: Arc<Lobby>,
    /// What it was asked and turned out to speak; `None` where it has heard nothing yet.
    pub(super) era: Option<Era>,
    since: Instant,
}

impl Spare {
    pub(super) fn new(lobby: Arc<Lobby>, era: Option<Era>) -> Self {
        let since = Instant::now();
        Self { lobby, era, since }
    }

    fn is_open(&self) -> bool {
        self.lobby.first.is_open()
    }
}

/// The place of the one spare process.
pub(super) struct Bench {
    state: watch::Sender<State>,
}

enum State {
    Free,
    /// It is started, or asked.
    Busy,
    Ready(Spare),
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(State::Free),
        }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bench")
    }
}

/// The right to put a process there. Dropped, nobody does.
pub(super) struct Turn<'a> {
    bench: &'a Bench,
    spare: Option<Spare>,
}

impl Turn<'_> {
    /// The process that was there already, and has heard nothing.
    pub(super) fn spare(&mut self) -> Option<Spare> {
        self.spare.take()
    }

    pub(super) fn put(mut self, spare: Spare) {
        self.spare = Some(spare);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let state = match self.spare.take() {
            Some(spare) => State::Ready(spare),
            None => State::Free,
        };
        self.bench.state.send_replace(state);
    }
}

/// What is found where a process is to be asked for the era.
pub(super) enum Found<'a> {
    /// It was asked.
    Era(Era),
    ToAsk(Turn<'a>),
}

impl Bench {
    /// For one who starts a process before anybody asks; `None`: there is one, or soon will be.
    pub(super) fn try_turn(&self) -> Option<Turn<'_>> {
        let mut is_free = false;
        self.state.send_if_modified(|state| {
            is_free = match state {
                State::Free => true,
                State::Busy => false,
                State::Ready(spare) => !spare.is_open(),
            };
            if is_free {
                *state = State::Busy;
            }
            is_free
        });
        is_free.then_some(Turn {
            bench: self,
            spare: None,
        })
    }

    /// For one who asks for the era. Waits while another one does.
    pub(super) async fn to_ask(&self) -> Found<'_> {
        let mut changes = self.state.subscribe();
        loop {
            let mut found = None;
            self.state.send_if_modified(|state| {
                match state {
                    State::Busy => return false,
                    State::Ready(spare) if spare.is_open() => {
                        if let Some(era) = spare.era {
                            found = Some(Found::Era(era));
                            return false;
                        }
                    }
                    State::Ready(_) | State::Free => {}
                }
                let before = std::mem::replace(state, State::Busy);
                found = Some(Found::ToAsk(Turn {
                    bench: self,
                    spare: match before {
                        State::Ready(spare) if spare.is_open() => Some(spare),
                        State::Ready(_) | State::Busy | State::Free => None,
                    },
                }));
                true
            });
            match found {
                Some(found) => return found,
                // The sender is ours.
                None => drop(changes.changed().await),
            }
        }
    }

    /// The process, for one who speaks that era to it. Waits, bounded, while it is asked.
    pub(super) async fn take(&self, era: Era, patience: Duration) -> Option<Arc<Lobby>> {
        let mut changes = self.state.subscribe();
        let waiting = changes.wait_for(|state| !matches!(state, State::Busy));
        drop(tokio::time::timeout(patience, waiting).await);
        let mut taken = None;
        self.state.send_if_modified(|state| {
            let fits = match state {
                State::Ready(spare) => spare.era.is_none_or(|heard| heard == era),
                State::Busy | State::Free => false,
            };
            if fits && let State::Ready(spare) = std::mem::replace(state, State::Free) {
                taken = Some(spare);
            }
            fits
        });
        let taken = taken.filter(Spare::is_open)?;
        Some(taken.lobby)
    }

    /// Whether a process waits there for whoever speaks that era to it.
    pub(super) fn fits(&self, era: Era) -> bool {
        match &*self.state.borrow() {
            State::Ready(spare) => spare.is_open() && spare.era.is_none_or(|heard| heard == era),
            State::Busy | State::Free => false,
        }
    }

    /// Ends the process that waited for so long. False where there is none.
    pub(super) fn close_unused(&self, idle: Duration) -> bool {
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let State::Ready(spare) = state else {
                return false;
            };
            if now.saturating_duration_since(spare.since) < idle {
                return false;
            }
            spare.lobby.first.close();
            *state = State::Free;
            true
        })
    }
}
