//! What this process knows of the companion tools: how they are named, how long they wait, and which
//! clients know nothing of them.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::lock::Mutex;
use crate::mcp::tools::Tools;
use crate::task::ticket::CompanionNames;

/// `task_status` and `task_result` answer this long before `fallback_after`, so that the client's own
/// timeout, which is the same for every call, never fires first.
const WAIT_SPARE: Duration = Duration::from_secs(5);

/// Clients that are remembered to know nothing of our tools.
const UNAWARE_MAX: usize = 4096;

/// What the companion tools are told.
#[derive(Debug)]
pub struct Companion {
    prefix: Arc<str>,
    pub(super) wait_max: Duration,
    /// Sessions, or callers without one, whose list of tools passed without ours.
    unaware: Mutex<HashSet<[u8; 16]>>,
}

impl Companion {
    /// The prefix is for names that the server has, too; clients wait for at least `patience`.
    pub fn new(prefix: &str, patience: Duration) -> Self {
        let spared = patience.saturating_sub(WAIT_SPARE).max(patience / 2);
        Self {
            prefix: prefix.into(),
            wait_max: spared,
            unaware: Mutex::default(),
        }
    }

    /// What our tools are called beside the server's. `None`: the server has tools of all our names. Without the
    /// list, neither raincheck nor the client can know of a name that clashes.
    pub(in crate::downstream) fn names(&self, tools: Option<&Tools>) -> Option<CompanionNames> {
        let is_taken = |name: &str| tools.is_some_and(|tools| tools.get(name).is_some());
        CompanionNames::free(&self.prefix, is_taken)
    }

    fn unaware(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        self.unaware.lock()
    }

    /// What the client knows of our tools is what was in its list.
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

    /// Whether no ticket is of any use to that client.
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
