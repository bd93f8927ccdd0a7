//! The callers that were told that the server may have everything, because the server had not said yet what it has.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::Mutex;
use crate::task::id::Caller;

/// How many callers are remembered.
const CALLERS_MAX: usize = 1024;

/// Who was told that the server may have everything, before it had said what it has.
#[derive(Debug, Default)]
pub struct StandIns {
    /// False: no caller was told, and the set need not be locked.
    any: AtomicBool,
    /// The program was asked once what it says of itself.
    pub(super) has_learnt: AtomicBool,
    callers: Mutex<HashSet<[u8; 16]>>,
}

impl StandIns {
    pub(super) fn note(&self, caller: Caller) {
        let mut callers = self.callers.lock();
        if callers.len() >= CALLERS_MAX {
            callers.clear();
        }
        callers.insert(*caller.as_bytes());
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
