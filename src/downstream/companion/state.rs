//! The state of the companion tools in this process: the clients that have them, their names, their longest wait, and
//! the clients that do not know them.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::base::lock::Mutex;
use crate::downstream::inbound::requester::Requester;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::task::clients::ClientTerms;
use crate::task::ticket::CompanionNames;

/// `task_status` and `task_result` answer this long before `fallback_after`, so that the client's own
/// timeout, which is the same for every call, never fires first.
const WAIT_SPARE: Duration = Duration::from_secs(5);

/// The largest number of remembered clients without the companion tools.
const UNAWARE_MAX: usize = 4096;

/// Which clients have the tools, of those that do not declare Tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhoHas {
    All,
    /// Those that are known to need them.
    KnownToNeed,
    /// These, and those that are not known.
    AllButKnownNotTo,
}

/// The settings of the companion tools, and the clients that do not know the tools.
#[derive(Debug)]
pub struct Companion {
    prefix: Arc<str>,
    who: WhoHas,
    /// Sessions, or callers without a session, whose list of tools had no companion tools.
    unaware: Mutex<HashSet<[u8; 16]>>,
}

impl Companion {
    /// `prefix`: for names that the server has, too.
    pub fn new(prefix: &str, who: WhoHas) -> Self {
        Self {
            prefix: prefix.into(),
            who,
            unaware: Mutex::default(),
        }
    }

    /// Returns `true` if a client of that era has them, on a request that does not declare Tasks.
    pub(in crate::downstream) fn is_for(&self, client: ClientTerms, era: Era) -> bool {
        match (self.who, client.client()) {
            (WhoHas::All, _) | (WhoHas::AllButKnownNotTo, None) => true,
            (WhoHas::KnownToNeed | WhoHas::AllButKnownNotTo, _) => {
                client.companion_tools(era).value
            }
        }
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
        // A forgotten client counts as one with the tools, and may get a ticket that it cannot use.
        if unaware.len() >= UNAWARE_MAX {
            unaware.clear();
        }
        unaware.insert(whose);
    }

    /// Returns `true` if the client does not know the companion tools, so that it could not use a ticket.
    pub(in crate::downstream) fn is_unknown_to(&self, whose: &[u8; 16]) -> bool {
        self.unaware().contains(whose)
    }
}

/// Returns the longest time for which `task_status` and `task_result` may wait.
pub(super) fn wait_max(by: &Requester) -> Duration {
    let patience = by.client.fallback_after_ms(by.rules.defaults()).value;
    let patience = Duration::from_millis(patience);
    // Of a short patience this leaves half, because the spare would take most of it.
    patience.saturating_sub(WAIT_SPARE).max(patience / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_told_of_our_tools_gets_no_ticket_until_it_is() {
        let companion = Companion::new("our_", WhoHas::All);
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
