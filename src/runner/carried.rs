//! The tasks that this replica carries, and the way to stop one without asking the store.

use std::sync::{Arc, MutexGuard};

use tokio::sync::Notify;

use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::{Caller, TaskId};

/// The registry of the carried tasks.
#[derive(Debug, Default)]
pub(super) struct CarriedTasks {
    by_id: Mutex<PrehashedMap<TaskId, Vec<CarriedEntry>>>,
}

#[derive(Debug)]
struct CarriedEntry {
    caller: Caller,
    stop: Arc<Notify>,
}

/// A task in the registry. Dropping it ends the entry.
#[derive(Debug)]
pub(super) struct CarriedTask {
    carried: Arc<CarriedTasks>,
    pub(super) id: TaskId,
    /// Notified when the client wants the call stopped and the store cannot be asked.
    pub(super) stop: Arc<Notify>,
}

impl CarriedTasks {
    /// Adds a task. The caller does so before the record names this replica: in between, the reconcile
    /// would take the task for forgotten.
    pub(super) fn enter(self: &Arc<Self>, id: TaskId, caller: Caller) -> CarriedTask {
        let stop = Arc::new(Notify::new());
        let entry = CarriedEntry {
            caller,
            stop: Arc::clone(&stop),
        };
        // Two updates of one task may each be about to carry its next leg.
        let mut entries = self.entries();
        entries
            .entry(id)
            .or_insert_with(|| Vec::with_capacity(1))
            .push(entry);
        drop(entries);
        CarriedTask {
            carried: Arc::clone(self),
            id,
            stop,
        }
    }

    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.entries().contains_key(&id)
    }

    /// Stops the call if this replica carries it and it belongs to this caller.
    pub(super) fn stop(&self, id: TaskId, caller: &Caller) {
        for entry in self.entries().get(&id).into_iter().flatten() {
            if entry.caller == *caller {
                // `notify_one` leaves a permit, so a stop that comes while the carrier handles an event is not lost.
                entry.stop.notify_one();
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, PrehashedMap<TaskId, Vec<CarriedEntry>>> {
        self.by_id.lock()
    }
}

impl Drop for CarriedTask {
    fn drop(&mut self) {
        let mut entries = self.carried.entries();
        if let Some(of_task) = entries.get_mut(&self.id) {
            of_task.retain(|entry| !Arc::ptr_eq(&entry.stop, &self.stop));
            if of_task.is_empty() {
                entries.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_its_caller_stops_a_call_and_the_next_leg_outlives_the_last() {
        let carried = Arc::new(CarriedTasks::default());
        let (id, caller) = (TaskId::random(), Caller::from_bytes([1; 16]));
        let first = carried.enter(id, caller);
        carried.stop(id, &Caller::from_bytes([2; 16]));
        assert!(first.stop.notified().now_or_never().is_none());
        carried.stop(id, &caller);
        assert!(first.stop.notified().now_or_never().is_some());

        let second = carried.enter(id, caller);
        drop(first);
        assert!(carried.contains(id));
        let third = carried.enter(id, caller);
        drop(third);
        assert!(carried.contains(id), "the second still carries it");
        drop(second);
        assert!(!carried.contains(id));
    }
}
