//! A process of the server that runs before it is needed, so that it is started once: it is asked for
//! the era, and the first caller goes on with it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::Mutex;
use crate::mcp::version::Era;
use crate::upstream::channel::shared::SharedLine;
use crate::upstream::channel::writer::{LineEnd, LineListener, LineWriter, NotTaken, SendState};
use crate::upstream::heard::ServerMessage;

/// What the process says, until somebody goes on with it and ever after.
pub(super) struct Lobby {
    first: Arc<SharedLine>,
    next: OnceLock<Arc<dyn LineListener>>,
    /// That it ends and that it is handed over do not happen at the same time.
    handing: Mutex<()>,
}

impl Lobby {
    pub(super) fn new(first: Arc<SharedLine>) -> Arc<Self> {
        Arc::new(Self {
            first,
            next: OnceLock::new(),
            handing: Mutex::default(),
        })
    }

    /// Where it is asked what it is.
    pub(super) fn line(&self) -> &Arc<SharedLine> {
        &self.first
    }

    fn listener(&self) -> &dyn LineListener {
        match self.next.get() {
            Some(next) => &**next,
            None => &*self.first,
        }
    }

    /// From now on it is that listener's. `None`: it has ended.
    pub(super) fn hand_over<E: LineListener>(
        &self,
        listener: impl FnOnce(LineWriter, &SharedLine) -> Arc<E>,
    ) -> Option<Arc<E>> {
        let _one = self.handing.lock();
        if !self.first.is_open() {
            return None;
        }
        let listener = listener(self.first.writer().clone(), &self.first);
        let next: Arc<dyn LineListener> = Arc::<E>::clone(&listener);
        self.next.set(next).ok()?;
        Some(listener)
    }
}

impl LineListener for Lobby {
    fn heard(&self, message: ServerMessage, text: &str) {
        self.listener().heard(message, text);
    }

    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: NotTaken) {
        self.listener().refused(send_state, refusal);
    }

    fn over(&self, end: LineEnd) {
        let _one = self.handing.lock();
        self.listener().over(end);
    }
}

/// A process that no caller uses yet.
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
    state: watch::Sender<BenchState>,
}

enum BenchState {
    Free,
    /// It is started, or asked.
    Busy,
    Ready(Spare),
}

impl Default for Bench {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(BenchState::Free),
        }
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bench")
    }
}

/// The right to put a process there. Dropped, the place is free again.
pub(super) struct BenchTurn<'a> {
    bench: &'a Bench,
    spare: Option<Spare>,
}

impl BenchTurn<'_> {
    /// The process that was there already, and has heard nothing.
    pub(super) fn spare(&mut self) -> Option<Spare> {
        self.spare.take()
    }

    pub(super) fn put(mut self, spare: Spare) {
        self.spare = Some(spare);
    }
}

impl Drop for BenchTurn<'_> {
    fn drop(&mut self) {
        let state = match self.spare.take() {
            Some(spare) => BenchState::Ready(spare),
            None => BenchState::Free,
        };
        self.bench.state.send_replace(state);
    }
}

/// What is found where a process is to be asked for the era.
pub(super) enum ProbeTurn<'a> {
    /// It was asked.
    Era(Era),
    ToAsk(BenchTurn<'a>),
}

impl Bench {
    /// For one who starts a process before anybody asks; `None`: there is one, or soon will be.
    pub(super) fn try_turn(&self) -> Option<BenchTurn<'_>> {
        let mut is_free = false;
        self.state.send_if_modified(|state| {
            is_free = match state {
                BenchState::Free => true,
                BenchState::Busy => false,
                BenchState::Ready(spare) => !spare.is_open(),
            };
            if is_free {
                *state = BenchState::Busy;
            }
            is_free
        });
        is_free.then_some(BenchTurn {
            bench: self,
            spare: None,
        })
    }

    /// For one who asks for the era. Waits while another one does.
    pub(super) async fn to_ask(&self) -> ProbeTurn<'_> {
        let mut changes = self.state.subscribe();
        loop {
            let mut found = None;
            self.state.send_if_modified(|state| {
                match state {
                    BenchState::Busy => return false,
                    BenchState::Ready(spare) if spare.is_open() => {
                        if let Some(era) = spare.era {
                            found = Some(ProbeTurn::Era(era));
                            return false;
                        }
                    }
                    BenchState::Ready(_) | BenchState::Free => {}
                }
                let before = std::mem::replace(state, BenchState::Busy);
                found = Some(ProbeTurn::ToAsk(BenchTurn {
                    bench: self,
                    spare: match before {
                        BenchState::Ready(spare) if spare.is_open() => Some(spare),
                        BenchState::Ready(_) | BenchState::Busy | BenchState::Free => None,
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
        let waiting = changes.wait_for(|state| !matches!(state, BenchState::Busy));
        drop(tokio::time::timeout(patience, waiting).await);
        let mut taken = None;
        self.state.send_if_modified(|state| {
            let fits = match state {
                BenchState::Ready(spare) => spare.era.is_none_or(|heard| heard == era),
                BenchState::Busy | BenchState::Free => false,
            };
            if fits && let BenchState::Ready(spare) = std::mem::replace(state, BenchState::Free) {
                taken = Some(spare);
            }
            fits
        });
        let taken = taken.filter(Spare::is_open)?;
        Some(taken.lobby)
    }

    /// Whether a process waits there for a caller that speaks that era.
    pub(super) fn fits(&self, era: Era) -> bool {
        match &*self.state.borrow() {
            BenchState::Ready(spare) => {
                spare.is_open() && spare.era.is_none_or(|heard| heard == era)
            }
            BenchState::Busy | BenchState::Free => false,
        }
    }

    /// Ends the process that waited for so long. False where there is none.
    pub(super) fn close_unused(&self, idle: Duration) -> bool {
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let BenchState::Ready(spare) = state else {
                return false;
            };
            if now.saturating_duration_since(spare.since) < idle {
                return false;
            }
            spare.lobby.first.close();
            *state = BenchState::Free;
            true
        })
    }
}
