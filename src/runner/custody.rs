//! The custody of a task: a replica takes it before a record says that the replica carries the task.

use super::carried::CarriedTask;
use super::state::Runner;
use super::watch::Watch;
use crate::task::state::Task;

/// Holds a watch, so that no change is missed, and an entry among the carried tasks, so that the reconcile
/// leaves the task alone.
pub(super) struct Custody {
    watch: Watch,
    carried: CarriedTask,
}

impl Custody {
    pub(super) fn of(runner: &Runner, task: &Task) -> Self {
        Self {
            watch: runner.watches.watch(vec![task.id]),
            carried: runner.carried.enter(task.id, task.caller),
        }
    }

    /// Resolves when the record changed.
    ///
    /// Cancel safe.
    pub(super) async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Resolves when the client wants the call stopped and the store cannot be asked.
    ///
    /// Cancel safe.
    pub(super) async fn stopped(&self) {
        self.carried.stop.notified().await;
    }
}
