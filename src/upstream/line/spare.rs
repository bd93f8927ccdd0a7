//! The spare process of the server: it is started before a caller needs one, is asked for its era, and becomes the
//! line of the first caller.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::base::lock::Mutex;
use crate::mcp::version::Era;
use crate::upstream::line::shared::SharedLine;
use crate::upstream::line::writer::{LineEnd, LineListener, LineWriter, SendState, WriteError};
use crate::upstream::reader_queue::Full;
use crate::upstream::server_message::ServerMessage;

/// Listens to the spare process, and to the same process after a caller has taken it over.
pub(super) struct HandoverListener {
    first: Arc<SharedLine>,
    next: OnceLock<Arc<dyn LineListener>>,
    /// Keeps the end of the process and its handover apart.
    handing: Mutex<()>,
}

impl HandoverListener {
    pub(super) fn new(first: Arc<SharedLine>) -> Arc<Self> {
        Arc::new(Self {
            first,
            next: OnceLock::new(),
            handing: Mutex::default(),
        })
    }

    /// The line over which the process is asked for its era.
    pub(super) fn line(&self) -> &Arc<SharedLine> {
        &self.first
    }

    fn listener(&self) -> &dyn LineListener {
        match self.next.get() {
            Some(next) => &**next,
            None => &*self.first,
        }
    }

    /// Hands the process to another listener. `None`: the process has ended.
    pub(super) fn hand_over<E: LineListener>(
        &self,
        listener: impl FnOnce(LineWriter, &SharedLine) -> Arc<E>,
    ) -> Option<Arc<E>> {
        // If the process ended between the check and `set`, the new listener would not get its end.
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

impl LineListener for HandoverListener {
    fn heard(&self, message: ServerMessage, text: &str) {
        self.listener().heard(message, text);
    }

    fn full(&self) -> Option<Full> {
        self.listener().full()
    }

    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: WriteError) {
        self.listener().refused(send_state, refusal);
    }

    fn over(&self, end: LineEnd) {
        let _one = self.handing.lock();
        self.listener().over(end);
    }
}

/// The messages that a spare process has received.
#[derive(Debug, Clone)]
pub(super) enum Heard {
    /// Nothing, or `server/discover` only.
    Nothing,
    /// `initialize`, and has answered. It is of use to callers that declare the same.
    Initialize(Arc<str>),
}

/// For whom a process is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpareFor<'k> {
    pub(super) era: Era,
    /// The caller's declaration in the handshake. `None`: the process must not have had a handshake.
    pub(super) declared: Option<&'k str>,
}

/// A process that no caller uses yet.
pub(super) struct Spare {
    pub(super) handover: Arc<HandoverListener>,
    /// The era that was found out. `None`: nothing was sent to the process yet.
    pub(super) era: Option<Era>,
    pub(super) heard: Heard,
    since: Instant,
}

impl Spare {
    pub(super) fn new(handover: Arc<HandoverListener>, era: Option<Era>, heard: Heard) -> Self {
        let since = Instant::now();
        Self {
            handover,
            era,
            heard,
            since,
        }
    }

    fn is_open(&self) -> bool {
        self.handover.first.is_open()
    }

    fn fits(&self, caller: SpareFor<'_>) -> bool {
        let declares = match &self.heard {
            Heard::Nothing => true,
            Heard::Initialize(declared) => caller.declared == Some(&**declared),
        };
        declares && self.era.is_none_or(|heard| heard == caller.era)
    }
}

/// The place of the one spare process.
pub(super) struct SpareSlot {
    state: watch::Sender<SpareState>,
}

enum SpareState {
    Free,
    /// The process is being started or asked for its era.
    Busy,
    Ready(Spare),
}

impl Default for SpareSlot {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(SpareState::Free),
        }
    }
}

impl fmt::Debug for SpareSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpareSlot")
    }
}

/// The right to put a process into the place. If it is dropped, the place is free again.
pub(super) struct SpareTurn<'a> {
    spare_place: &'a SpareSlot,
    spare: Option<Spare>,
}

impl SpareTurn<'_> {
    /// Returns the process that was there already, and has received nothing.
    pub(super) fn spare(&mut self) -> Option<Spare> {
        self.spare.take()
    }

    pub(super) fn put(mut self, spare: Spare) {
        // The drop of `self` puts it into the place.
        self.spare = Some(spare);
    }
}

impl Drop for SpareTurn<'_> {
    fn drop(&mut self) {
        let state = match self.spare.take() {
            Some(spare) => SpareState::Ready(spare),
            None => SpareState::Free,
        };
        self.spare_place.state.send_replace(state);
    }
}

/// The era of the server, or the right to ask the spare process for it.
pub(super) enum ProbeTurn<'a> {
    /// The era was found out before.
    Era(Era),
    /// The caller asks the spare process.
    ToAsk(SpareTurn<'a>),
}

impl SpareSlot {
    /// Begins to start the spare process. `None`: there is one, or it is being started.
    pub(super) fn try_turn(&self) -> Option<SpareTurn<'_>> {
        let mut is_free = false;
        self.state.send_if_modified(|state| {
            is_free = match state {
                SpareState::Free => true,
                SpareState::Busy => false,
                // The end of a process does not free its place, so one that has ended counts as none.
                SpareState::Ready(spare) => !spare.is_open(),
            };
            if is_free {
                *state = SpareState::Busy;
            }
            is_free
        });
        is_free.then_some(SpareTurn {
            spare_place: self,
            spare: None,
        })
    }

    /// Begins to find out the era. Waits while another caller does.
    pub(super) async fn to_ask(&self) -> ProbeTurn<'_> {
        let mut changes = self.state.subscribe();
        loop {
            let mut found = None;
            self.state.send_if_modified(|state| {
                match state {
                    SpareState::Busy => return false,
                    SpareState::Ready(spare) if spare.is_open() => {
                        if let Some(era) = spare.era {
                            found = Some(ProbeTurn::Era(era));
                            return false;
                        }
                    }
                    SpareState::Ready(_) | SpareState::Free => {}
                }
                let before = std::mem::replace(state, SpareState::Busy);
                found = Some(ProbeTurn::ToAsk(SpareTurn {
                    spare_place: self,
                    spare: match before {
                        SpareState::Ready(spare) if spare.is_open() => Some(spare),
                        SpareState::Ready(_) | SpareState::Busy | SpareState::Free => None,
                    },
                }));
                true
            });
            match found {
                Some(found) => return found,
                // The channel cannot be closed: `self` holds the sender.
                None => drop(changes.changed().await),
            }
        }
    }

    /// Takes the process, for that caller. Waits for a bounded time while the
    /// process is asked for its era.
    pub(super) async fn take(&self, caller: SpareFor<'_>, patience: Duration) -> Option<Spare> {
        let mut changes = self.state.subscribe();
        let waiting = changes.wait_for(|state| !matches!(state, SpareState::Busy));
        // If the place is still busy then, the caller starts a process of its own.
        drop(tokio::time::timeout(patience, waiting).await);
        let mut taken = None;
        self.state.send_if_modified(|state| {
            let fits = match state {
                SpareState::Ready(spare) => spare.fits(caller),
                SpareState::Busy | SpareState::Free => false,
            };
            if fits && let SpareState::Ready(spare) = std::mem::replace(state, SpareState::Free) {
                taken = Some(spare);
            }
            fits
        });
        // The process may have ended while it waited in its place.
        taken.filter(Spare::is_open)
    }

    /// Returns `true` if a process waits for such a caller.
    pub(super) fn fits(&self, caller: SpareFor<'_>) -> bool {
        match &*self.state.borrow() {
            SpareState::Ready(spare) => spare.is_open() && spare.fits(caller),
            SpareState::Busy | SpareState::Free => false,
        }
    }

    /// Ends the process if it has waited for this long. False if it was not ended.
    pub(super) fn close_unused(&self, idle: Duration) -> bool {
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let SpareState::Ready(spare) = state else {
                return false;
            };
            if now.saturating_duration_since(spare.since) < idle {
                return false;
            }
            spare.handover.first.close();
            *state = SpareState::Free;
            true
        })
    }
}
