//! Which of the tasks that the due index names a sweep looks at, and in which order. Thousands of tasks may be in the
//! index only because a receiver of webhooks is dead: they must not keep other tasks from meeting their deadlines.

use std::collections::HashMap;

use crate::task::id::TaskId;
use crate::task::notices::ReceiverId;
use crate::task::state::Task;

/// The most tasks that are remembered. Any further tasks are read at each sweep that comes so far.
const REMEMBERED_MAX: usize = 16_384;

/// A task that was not looked at for this long has most likely left the index.
const FORGOTTEN_MS: u64 = 5 * 60_000;

/// The tasks that a sweep found in the due index only because a receiver must still hear of them. Later sweeps need not
/// read their records to know that.
#[derive(Debug, Default)]
pub(super) struct AwaitingReceivers {
    tasks: HashMap<TaskId, LastLook>,
}

#[derive(Debug, Clone, Copy)]
struct LastLook {
    at_ms: u64,
    /// When the task must be looked at for its own sake.
    due_ms: u64,
    /// Only subscriptions of clients must still hear of the task.
    is_of_clients: bool,
}

/// A task that only waits for its receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AwaitingTask {
    pub(super) id: TaskId,
    /// Only subscriptions of clients must still hear of it.
    pub(super) is_of_clients: bool,
}

/// What the due index names, in the order in which a sweep looks at it.
#[derive(Debug)]
pub(super) struct Looks {
    /// The tasks that may need something else than a receiver, most overdue first.
    pub(super) first: Vec<TaskId>,
    /// The others, those first that no sweep has looked at for longest.
    pub(super) awaiting: Vec<AwaitingTask>,
}

impl AwaitingReceivers {
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Splits what the index names.
    pub(super) fn split(&mut self, named: Vec<TaskId>, now_ms: u64) -> Looks {
        self.tasks.retain(|_, look| {
            now_ms < look.due_ms && now_ms < look.at_ms.saturating_add(FORGOTTEN_MS)
        });
        let is_known = |id: &TaskId| self.tasks.contains_key(id);
        let (mut awaiting, first): (Vec<_>, Vec<_>) = named.into_iter().partition(is_known);
        awaiting.sort_by_key(|id| self.tasks.get(id).map(|look| look.at_ms));
        let awaiting = awaiting.into_iter().map(|id| AwaitingTask {
            id,
            is_of_clients: self.tasks.get(&id).is_some_and(|look| look.is_of_clients),
        });
        Looks {
            first,
            awaiting: awaiting.collect(),
        }
    }

    /// Notes what a look has found: whether a receiver must still hear of the task, and nothing else is to be done.
    pub(super) fn note(&mut self, task: &Task, is_awaiting: bool, now_ms: u64) {
        if !is_awaiting {
            self.tasks.remove(&task.id);
        } else if self.tasks.len() < REMEMBERED_MAX || self.tasks.contains_key(&task.id) {
            let due_ms = task.due_ms().unwrap_or(u64::MAX);
            let look = LastLook {
                at_ms: now_ms,
                due_ms,
                is_of_clients: are_of_clients(task),
            };
            self.tasks.insert(task.id, look);
        }
    }
}

fn are_of_clients(task: &Task) -> bool {
    let mut receivers = task.notices.iter().map(|notices| notices.receiver);
    receivers.all(ReceiverId::is_subscription)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::state::Leg;

    fn made() -> Task {
        Task {
            id: TaskId::random(),
            ..task(Leg::Queued, true)
        }
    }

    fn ids(looks: &Looks) -> Vec<TaskId> {
        looks.awaiting.iter().map(|task| task.id).collect()
    }

    #[test]
    fn what_waits_for_its_receivers_comes_last_and_each_in_its_turn() {
        let (a, b, c, new) = (made(), made(), made(), made());
        let mut awaiting = AwaitingReceivers::default();
        awaiting.note(&a, true, NOW + 1);
        awaiting.note(&b, true, NOW);
        awaiting.note(&c, true, NOW);
        let looks = awaiting.split(vec![a.id, b.id, c.id, new.id], NOW + 1);
        assert_eq!(looks.first, [new.id]);
        assert_eq!(ids(&looks), [b.id, c.id, a.id]);
        awaiting.note(&b, false, NOW + 1);
        let looks = awaiting.split(vec![a.id, b.id], NOW + 1);
        assert_eq!((ids(&looks), looks.first), (vec![a.id], vec![b.id]));
    }

    #[test]
    fn a_task_that_is_due_itself_comes_in_its_order() {
        let (due, other) = (made(), made());
        let due_ms = due.due_ms().unwrap();
        let mut awaiting = AwaitingReceivers::default();
        awaiting.note(&due, true, due_ms - 1);
        let looks = awaiting.split(vec![due.id, other.id], due_ms - 1);
        assert_eq!(looks.first, [other.id]);
        let looks = awaiting.split(vec![due.id, other.id], due_ms);
        assert_eq!(looks.first, [due.id, other.id]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut awaiting = AwaitingReceivers::default();
        for _ in 0..=REMEMBERED_MAX {
            awaiting.note(&made(), true, NOW);
        }
        assert_eq!(awaiting.len(), REMEMBERED_MAX);
        awaiting.split(Vec::new(), NOW + FORGOTTEN_MS);
        assert_eq!(awaiting.len(), 0);
    }
}
