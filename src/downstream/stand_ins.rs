//! The callers that received the answer that the server may have everything, because the server had not declared its
//! features yet.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::lock::Mutex;
use crate::task::id::Caller;

/// The number of callers that are remembered.
const CALLERS_MAX: usize = 1024;

/// The callers that received the answer that the server may have everything, before it had declared its features.
#[derive(Debug, Default)]
pub struct StandIns {
    /// `false` if no caller received that answer, and the set need not be locked.
    any: AtomicBool,
    /// The program was asked once for its description of itself.
    pub(super) has_learnt: AtomicBool,
    callers: Mutex<HashSet<[u8; 16]>>,
}

impl StandIns {
    pub(super) fn note(&self, caller: Caller) {
        let mut callers = self.callers.lock();
        if callers.len() >= CALLERS_MAX {
            // A forgotten caller only gets the server's error for a feature that the server lacks.
            callers.clear();
        }
        callers.insert(*caller.as_bytes());
        // Set under the lock, so that a reader that sees it finds the caller in the set.
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_told(&self, caller: &Caller) -> bool {
        let told = || {
            let callers = self.callers.lock();
            callers.contains(caller.as_bytes())
        };
        self.any.load(Ordering::Relaxed) && told()
    }
}
