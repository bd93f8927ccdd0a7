//! What is known of the requests on one line.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;

use super::mouth::Passage;
use super::said::{Notice, Said};

/// Changes of the server that wait for a listener; one that is slower starts anew.
const NOTICES_MAX: usize = 64;

/// A cancelled request that was not answered may go on and ask. After so long it is taken to have
/// ended: many servers never answer what was cancelled.
const ABANDONED: Duration = Duration::from_secs(30);

/// Abandoned requests that are remembered.
const ABANDONED_MAX: usize = 1024;

pub(in crate::upstream) struct Table {
    pub(in crate::upstream) pending: HashMap<u64, Pending>,
    pub(in crate::upstream) abandoned: Vec<(u64, Instant)>,
    pub(in crate::upstream) is_open: bool,
    /// Listeners, which may have no request.
    pub(in crate::upstream) listeners: usize,
    /// Gone with the line, so that listeners come to an end.
    pub(in crate::upstream) notices: Option<broadcast::Sender<Arc<Notice>>>,
    pub(in crate::upstream) used: Instant,
    pub(in crate::upstream) ignored: u64,
}

pub(in crate::upstream) struct Pending {
    pub(in crate::upstream) events: mpsc::Sender<Said>,
    pub(in crate::upstream) answer: mpsc::OwnedPermit<Said>,
    pub(in crate::upstream) passage: Arc<Passage>,
    pub(in crate::upstream) may_ask: bool,
    /// Its client was asked, and may be asked again.
    pub(in crate::upstream) has_asked: bool,
}

impl Table {
    pub(in crate::upstream) fn new() -> Self {
        Self {
            pending: HashMap::new(),
            abandoned: Vec::new(),
            is_open: true,
            listeners: 0,
            notices: Some(broadcast::Sender::new(NOTICES_MAX)),
            used: Instant::now(),
            ignored: 0,
        }
    }

    /// A request for which nobody waits, and which may go on and ask.
    pub(in crate::upstream) fn abandon(&mut self, id: u64) {
        if self.abandoned.len() >= ABANDONED_MAX {
            self.abandoned.remove(0);
        }
        self.abandoned.push((id, Instant::now()));
    }

    /// A late answer: it is over. True if it was abandoned.
    pub(in crate::upstream) fn has_ended(&mut self, id: u64) -> bool {
        let before = self.abandoned.len();
        self.abandoned.retain(|(abandoned, _)| *abandoned != id);
        self.abandoned.len() < before
    }

    /// Nothing runs that may ask, or may still do so although nobody waits for it.
    pub(in crate::upstream) fn is_free(&self) -> bool {
        !self.has_abandoned() && !self.pending.values().any(|pending| pending.may_ask)
    }

    /// A request has asked its client something and is not over.
    pub(in crate::upstream) fn is_asking(&self) -> bool {
        self.pending.values().any(|pending| pending.has_asked)
    }

    pub(in crate::upstream) fn has_abandoned(&self) -> bool {
        let now = Instant::now();
        let lives = |since: Instant| now.saturating_duration_since(since) < ABANDONED;
        self.abandoned.iter().any(|(_, since)| lives(*since))
    }

    /// The only request that can be meant by what names none.
    pub(in crate::upstream) fn only_one(&self) -> Option<u64> {
        if self.has_abandoned() {
            return None;
        }
        let mut asking = self.pending.iter().filter(|(_, pending)| pending.may_ask);
        match (asking.next(), asking.next()) {
            (Some((id, _)), None) => Some(*id),
            _ => None,
        }
    }
}
