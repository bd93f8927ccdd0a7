//! The custody of a task: a replica takes it before a record states that the replica carries the task.

use std::sync::Arc;

use super::carried::{CarriedTask, CarriedTasks};
use super::state::Runner;
use super::watch::{Watch, Watches};
use crate::task::id::{Caller, TaskId};
use crate::task::state::Task;

/// Holds a watch, so that no change is missed, and an entry among the carried tasks, so that the reconcile
/// leaves the task alone.
#[derive(Debug)]
pub(super) struct Custody {
    watch: Watch,
    carried: CarriedTask,
}

/// What happened to a task in custody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CustodyNews {
    /// The client wants the call stopped, and the store cannot be asked.
    Stopped,
    /// The record changed.
    Changed,
}

impl Custody {
    pub(super) fn of(runner: &Runner, task: &Task) -> Self {
        Self::within(&runner.watches, &runner.carried, task.id, task.caller)
    }

    pub(super) fn within(
        watches: &Arc<Watches>,
        carried: &Arc<CarriedTasks>,
        id: TaskId,
        caller: Caller,
    ) -> Self {
        let watch = watches.watch(vec![id]);
        Self {
            carried: carried.enter(id, caller, watch.stopper()),
            watch,
        }
    }

    /// Has the record read again after a pause.
    pub(super) fn look_again(&self) {
        self.watch.mark_again(self.carried.id);
    }

    /// Resolves when the record changed.
    ///
    /// Cancel safe.
    pub(super) async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Returns `true`, once, if the client wants the call stopped and the store cannot be asked.
    pub(super) fn is_stopped(&self) -> bool {
        self.watch.is_stopped()
    }

    /// Resolves when the record changed or the call is stopped. A stop comes first.
    ///
    /// Cancel safe.
    pub(super) async fn news(&self) -> CustodyNews {
        match self.watch.changed_or_stopped().await {
            Some(_) => CustodyNews::Changed,
            None => CustodyNews::Stopped,
        }
    }
}
