//! Ends whose commit got no answer. Such an end is reported when a later read shows that the commit has happened,
//! so that each task that ends has its line in the log.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::lock::Mutex;
use crate::task::id::TaskId;
use crate::task::state::Task;
use crate::telemetry;

/// The most ends that wait for a read: twice the calls that a replica carries by default, because all of them may end while
/// the store answers none in time. Beyond that the oldest is forgotten.
const ENDS_MAX: usize = 32 * 1024;

/// The tasks that a commit of this process may have ended, while the store's answer did not arrive.
#[derive(Debug, Default)]
pub(super) struct LostEnds {
    /// The number of `ends`, so that a read without a lost end takes no lock.
    count: AtomicUsize,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    by_task: HashMap<TaskId, LostEnd>,
    /// The tasks in the order in which they came.
    by_age: BTreeMap<u64, TaskId>,
    came: u64,
}

#[derive(Debug)]
struct LostEnd {
    age: u64,
    /// The task before its end.
    before: Task,
}

impl LostEnds {
    /// Remembers a commit without an answer, if it ends its task. Of several commits for one task any may have happened.
    pub(super) fn remember(&self, before: &Task, after: &Task) {
        if before.is_ended() || !after.is_ended() {
            return;
        }
        let mut ends = self.ends.lock();
        ends.insert(before.clone());
        self.count.store(ends.by_task.len(), Ordering::Relaxed);
    }

    /// Reports the end of this task, if it waits for a read. `is_ours`: this process wrote the record as it is.
    pub(super) fn found(&self, task: &Task, is_ours: bool) {
        // If another replica wrote the end, that replica has reported it.
        if task.is_ended()
            && let Some(before) = self.take(task.id)
            && is_ours
        {
            telemetry::tasks::committed(Some(&before), task);
        }
    }

    /// Forgets this task, whose end was reported.
    pub(super) fn forget(&self, id: TaskId) {
        drop(self.take(id));
    }

    fn take(&self, id: TaskId) -> Option<Task> {
        // Without the lock a count may be old: the next read of the task reports the end then.
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut ends = self.ends.lock();
        let before = ends.remove(id);
        self.count.store(ends.by_task.len(), Ordering::Relaxed);
        before
    }
}

impl Ends {
    fn insert(&mut self, before: Task) {
        // Of several commits of one end the last counts, with a new age.
        self.remove(before.id);
        if self.by_task.len() == ENDS_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_task.remove(&oldest);
        }
        let age = self.came;
        self.came += 1;
        self.by_age.insert(age, before.id);
        self.by_task.insert(before.id, LostEnd { age, before });
    }

    fn remove(&mut self, id: TaskId) -> Option<Task> {
        let LostEnd { age, before } = self.by_task.remove(&id)?;
        self.by_age.remove(&age);
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    fn ended(open: &Task) -> Task {
        Task {
            outcome: Some(Outcome::Cancelled),
            ..open.clone()
        }
    }

    fn waiting(lost: &LostEnds) -> usize {
        let ends = lost.ends.lock();
        assert_eq!(ends.by_task.len(), ends.by_age.len());
        assert_eq!(ends.by_task.len(), lost.count.load(Ordering::Relaxed));
        ends.by_task.len()
    }

    #[test]
    fn an_end_waits_until_it_is_read_or_reported_otherwise() {
        let lost = LostEnds::default();
        let open = task(Leg::Sent(1), true);
        let after = ended(&open);
        lost.remember(&open, &after);
        lost.remember(&open, &after);
        assert_eq!(waiting(&lost), 1);
        lost.found(&open, true);
        assert_eq!(waiting(&lost), 1, "the task is open");
        lost.found(&after, true);
        assert_eq!(waiting(&lost), 0);
        lost.remember(&open, &after);
        lost.found(&after, false);
        assert_eq!(waiting(&lost), 0, "another replica ended it");
        lost.remember(&open, &after);
        lost.forget(open.id);
        assert_eq!(waiting(&lost), 0);
    }

    #[test]
    fn commits_that_end_nothing_are_not_remembered_and_the_rest_is_bounded() {
        let lost = LostEnds::default();
        let open = task(Leg::Sent(1), true);
        lost.remember(&open, &open);
        lost.remember(&ended(&open), &ended(&open));
        assert_eq!(waiting(&lost), 0);
        let mut ids = Vec::new();
        for _ in 0..=ENDS_MAX {
            let other = Task {
                id: TaskId::random(),
                ..open.clone()
            };
            lost.remember(&other, &ended(&other));
            ids.push(other.id);
        }
        assert_eq!(waiting(&lost), ENDS_MAX);
        assert!(lost.take(ids[0]).is_none(), "the oldest is forgotten");
        assert!(lost.take(ids[1]).is_some());
    }
}
