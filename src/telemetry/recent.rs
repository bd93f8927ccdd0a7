//! The ids of the tasks that changed lately, on any replica, so that operators can list those that have ended. The records stay
//! in the store.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::lock::Mutex;
use crate::task::id::TaskId;

/// The most tasks that are remembered: 160 KiB, and twice as much to find them.
const TASKS_MAX: usize = 10_000;

/// `true` if an operator can read the list. Otherwise nothing is remembered.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

static RECENT: Mutex<Option<Recent>> = Mutex::new(None);

#[derive(Default)]
struct Recent {
    /// The last one first.
    order: VecDeque<TaskId>,
    known: HashSet<TaskId>,
}

/// Remembers tasks from now on.
pub fn keep() {
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// A task ended here, or a commit of any replica changed it.
pub fn changed(id: TaskId) {
    if !IS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    let mut recent = RECENT.lock();
    let recent = recent.get_or_insert_default();
    if !recent.known.insert(id) {
        return;
    }
    if recent.order.len() == TASKS_MAX
        && let Some(oldest) = recent.order.pop_back()
    {
        recent.known.remove(&oldest);
    }
    recent.order.push_front(id);
}

/// The tasks that changed lately, at most `limit`.
pub fn tasks(limit: usize) -> Vec<TaskId> {
    let recent = RECENT.lock();
    let order = recent.iter().flat_map(|recent| recent.order.iter());
    order.take(limit).copied().collect()
}
