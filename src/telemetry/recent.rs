//! The ids of the tasks that ended here lately, so that operators can list them. The records stay in the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::Mutex;
use crate::task::id::TaskId;

/// The most ends that are remembered: 160 KiB.
const ENDS_MAX: usize = 10_000;

/// Whether an operator can ask. If not, nothing is remembered.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

static ENDS: Mutex<VecDeque<TaskId>> = Mutex::new(VecDeque::new());

/// Remembers ends from now on.
pub fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

pub(super) fn ended(id: TaskId) {
    if !IS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    let mut ends = ENDS.lock();
    if ends.len() == ENDS_MAX {
        ends.pop_back();
    }
    ends.push_front(id);
}

/// The tasks that ended here lately, the last one first, at most `limit`.
pub fn ends(limit: usize) -> Vec<TaskId> {
    ENDS.lock().iter().take(limit).copied().collect()
}
