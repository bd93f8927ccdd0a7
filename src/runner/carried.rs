//! The tasks that this replica carries, and the way to stop one without asking the store.

use std::sync::{Arc, MutexGuard};

use super::watch::Stopper;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::{Caller, TaskId};

/// The registry of the carried tasks.
#[derive(Debug, Default)]
pub(super) struct CarriedTasks {
    by_id: Mutex<PrehashedMap<TaskId, Vec<CarriedEntry>>>,
}

#[derive(Debug)]
struct CarriedEntry {
    caller: Caller,
    stop: Stopper,
    /// Set once the call is stopped.
    stopped_by: Option<CancelledBy>,
}

/// A task in the registry. Dropping it ends the entry.
#[derive(Debug)]
pub(super) struct CarriedTask {
    carried: Arc<CarriedTasks>,
    pub(super) id: TaskId,
    stop: Stopper,
}

impl CarriedTasks {
    /// Adds a task. The caller does so before the record names this replica: in between, the reconcile
    /// would take the task for forgotten.
    /// `stop`: stops the watch of who carries the task, when the client wants that and the store cannot be asked.
    pub(super) fn enter(
        self: &Arc<Self>,
        id: TaskId,
        caller: Caller,
        stop: Stopper,
    ) -> CarriedTask {
        let entry = CarriedEntry {
            caller,
            stop: stop.clone(),
            stopped_by: None,
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
    pub(super) fn stop(&self, id: TaskId, caller: &Caller, by: &CancelledBy) {
        for entry in self.entries().get_mut(&id).into_iter().flatten() {
            if entry.caller == *caller {
                entry.stopped_by = Some(by.clone());
                entry.stop.stop();
            }
        }
    }

    /// Returns the party that stopped a call.
    pub(super) fn stopped_by(&self, id: TaskId) -> CancelledBy {
        let entries = self.entries();
        let mut of_task = entries.get(&id).into_iter().flatten();
        let by = of_task.find_map(|entry| entry.stopped_by.clone());
        by.unwrap_or(CancelledBy::Client)
    }

    fn entries(&self) -> MutexGuard<'_, PrehashedMap<TaskId, Vec<CarriedEntry>>> {
        self.by_id.lock()
    }
}

impl Drop for CarriedTask {
    fn drop(&mut self) {
        let mut entries = self.carried.entries();
        if let Some(of_task) = entries.get_mut(&self.id) {
            of_task.retain(|entry| !entry.stop.is(&self.stop));
            if of_task.is_empty() {
                entries.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::{Watch, Watches};
    use super::*;

    #[test]
    fn only_its_caller_stops_a_call_and_the_next_leg_outlives_the_last() {
        let (carried, watches) = (
            Arc::new(CarriedTasks::default()),
            Arc::new(Watches::default()),
        );
        let (id, caller) = (TaskId::random(), Caller::from_bytes([1; 16]));
        let enter = || {
            let watch = watches.watch(vec![id]);
            let entry = carried.enter(id, caller, watch.stopper());
            (watch, entry)
        };
        let (watch, first): (Watch, CarriedTask) = enter();
        let by = CancelledBy::Operator(None);
        carried.stop(id, &Caller::from_bytes([2; 16]), &by);
        assert!(!watch.is_stopped());
        carried.stop(id, &caller, &by);
        assert!(watch.is_stopped());
        assert_eq!(carried.stopped_by(id), by);

        let (_second_watch, second) = enter();
        drop(first);
        assert!(carried.contains(id));
        let (_third_watch, third) = enter();
        drop(third);
        assert!(carried.contains(id), "the second still carries it");
        drop(second);
        assert!(!carried.contains(id));
    }
}
