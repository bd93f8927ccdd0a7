//! What this process knows of the companion tools: how they are named, how long they wait, and which
//! clients know nothing of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::lock::Mutex;
use crate::mcp::tools::Tools;
use crate::task::ticket::CompanionNames;

/// `task_status` and `task_result` answer this long before `fallback_after`, so that the client's own
/// timeout, which is the same for every call, never fires first.
const WAIT_SPARE: Duration = Duration::from_secs(5);

/// How many clients without the companion tools are remembered.
const UNAWARE_MAX: usize = 4096;

/// The settings of the companion tools, and the clients that do not know the tools.
#[derive(Debug)]
pub struct Companion {
    prefix: Arc<str>,
    wait_max_ms: AtomicU64,
    /// Sessions, or callers without a session, whose list of tools had no companion tools.
    unaware: Mutex<HashSet<[u8; 16]>>,
}

impl Companion {
    /// `prefix`: for names that the server has, too. `patience`: how long clients wait at least.
    pub fn new(prefix: &str, patience: Duration) -> Self {
        let companion = Self {
            prefix: prefix.into(),
            wait_max_ms: AtomicU64::default(),
            unaware: Mutex::default(),
        };
        companion.change_patience(patience);
        companion
    }

    /// Changes how long clients wait at least.
    pub fn change_patience(&self, patience: Duration) {
        let spared = patience.saturating_sub(WAIT_SPARE).max(patience / 2);
        let ms = u64::try_from(spared.as_millis()).unwrap_or(u64::MAX);
        self.wait_max_ms.store(ms, Ordering::Relaxed);
    }

    /// How long `task_status` and `task_result` may wait.
    pub(super) fn wait_max(&self) -> Duration {
        Duration::from_millis(self.wait_max_ms.load(Ordering::Relaxed))
    }

    /// The names of the companion tools beside the server's. `None`: the server has tools with all these names.
    /// Without the list, neither raincheck nor the client can know of a clash.
    pub(in crate::downstream) fn names(&self, tools: Option<&Tools>) -> Option<CompanionNames> {
        let is_taken = |name: &str| tools.is_some_and(|tools| tools.get(name).is_some());
        CompanionNames::free(&self.prefix, is_taken)
    }

    fn unaware(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        self.unaware.lock()
    }

    /// Notes whether the client's list had the companion tools.
    pub(in crate::downstream) fn note_list(&self, whose: [u8; 16], has_ours: bool) {
        let mut unaware = self.unaware();
        if has_ours {
            unaware.remove(&whose);
            return;
        }
        if unaware.len() >= UNAWARE_MAX {
            unaware.clear();
        }
        unaware.insert(whose);
    }

    /// Whether the client does not know the companion tools, so that it could not use a ticket.
    pub(in crate::downstream) fn is_unknown_to(&self, whose: &[u8; 16]) -> bool {
        self.unaware().contains(whose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_told_of_our_tools_gets_no_ticket_until_it_is() {
        let companion = Companion::new("our_", Duration::from_secs(45));
        let (one, other) = ([1; 16], [2; 16]);
        companion.note_list(one, false);
        assert!(companion.is_unknown_to(&one) && !companion.is_unknown_to(&other));
        companion.note_list(one, true);
        assert!(!companion.is_unknown_to(&one));
        for number in 0..u128::try_from(2 * UNAWARE_MAX).unwrap() {
            companion.note_list(number.to_be_bytes(), false);
            assert!(companion.unaware().len() <= UNAWARE_MAX);
        }
    }
}
