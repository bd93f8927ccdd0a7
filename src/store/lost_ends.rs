//! Ends whose commit got no answer. Such an end is reported when a later read shows that the commit has happened,
//! so that each task that ends has its line in the log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Nonce;
use crate::lock::Mutex;
use crate::task::state::Task;
use crate::telemetry;

/// The most ends that wait for a read. Beyond that the oldest is forgotten.
const ENDS_MAX: usize = 1024;

/// The commits of this process that ended a task and got no answer.
#[derive(Debug, Default)]
pub(super) struct LostEnds {
    /// The length of `ends`, so that a read without a lost end takes no lock.
    count: AtomicUsize,
    ends: Mutex<VecDeque<LostEnd>>,
}

#[derive(Debug)]
struct LostEnd {
    nonce: Nonce,
    /// The task before its end.
    before: Task,
}

impl LostEnds {
    /// Remembers a commit without an answer, if it ends its task.
    pub(super) fn remember(&self, before: &Task, after: &Task, nonce: Nonce) {
        if before.is_ended() || !after.is_ended() {
            return;
        }
        let before = before.clone();
        let mut ends = self.ends.lock();
        if ends.len() == ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back(LostEnd { nonce, before });
        self.count.store(ends.len(), Ordering::Relaxed);
    }

    /// Reports the end of this task, if the commit that wrote the record is one of those that got no answer.
    /// Returns whether the end was reported.
    pub(super) fn found(&self, task: &Task, nonce: Nonce) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 || !task.is_ended() {
            return false;
        }
        let before = {
            let mut ends = self.ends.lock();
            let same = ends.iter().position(|end| end.before.id == task.id);
            let end = same.and_then(|place| ends.remove(place));
            self.count.store(ends.len(), Ordering::Relaxed);
            // Under another nonce another replica ended the task, and has reported the end.
            end.filter(|end| end.nonce == nonce).map(|end| end.before)
        };
        if let Some(before) = &before {
            telemetry::tasks::committed(Some(before), task);
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::TaskId;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    fn ended(open: &Task) -> Task {
        Task {
            outcome: Some(Outcome::Cancelled),
            ..open.clone()
        }
    }

    #[test]
    fn an_end_is_reported_once_and_only_if_it_was_ours() {
        let lost = LostEnds::default();
        let open = task(Leg::Sent(1), true);
        let after = ended(&open);
        lost.remember(&open, &after, Nonce(1));
        assert!(!lost.found(&open, Nonce(1)), "the task is open");
        assert!(lost.found(&after, Nonce(1)));
        assert!(!lost.found(&after, Nonce(1)), "reported already");
        lost.remember(&open, &after, Nonce(2));
        assert!(!lost.found(&after, Nonce(3)), "another replica ended it");
        assert!(!lost.found(&after, Nonce(2)), "forgotten");
    }

    #[test]
    fn commits_that_end_nothing_are_not_remembered_and_the_rest_is_bounded() {
        let lost = LostEnds::default();
        let open = task(Leg::Sent(1), true);
        lost.remember(&open, &open, Nonce(1));
        lost.remember(&ended(&open), &ended(&open), Nonce(1));
        assert_eq!(lost.ends.lock().len(), 0);
        for number in 0..=ENDS_MAX {
            let other = Task {
                id: TaskId::random(),
                ..open.clone()
            };
            lost.remember(&other, &ended(&other), Nonce(number as u128));
        }
        assert_eq!(lost.ends.lock().len(), ENDS_MAX);
    }
}
