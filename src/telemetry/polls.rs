//! Metrics of the polls of clients: the number of polls for a task, the delay with which a client sees its end, and
//! the ends that no client saw.
//!
//! This replica knows the tasks that it ended, and the tasks that clients asked it for. A poll at another replica is
//! not seen.

use std::collections::VecDeque;

use super::metrics::METRICS;
use super::seconds::seconds;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::TaskId;
use crate::task::state::Task;

/// The most tasks that are followed at the same time. Further tasks are not counted.
const TASKS_MAX: usize = 20_000;

/// The number of the last seen ends that are remembered.
const SEEN_MAX: usize = 128;

static POLLS: Mutex<Option<PollCounts>> = Mutex::new(None);

#[derive(Debug, Default)]
struct PollCounts {
    tasks: PrehashedMap<TaskId, PolledTask>,
    /// The last tasks whose end a poll saw. A poll may see an end in the store before this replica notes it.
    seen: VecDeque<TaskId>,
}

#[derive(Debug, Default)]
struct PolledTask {
    polls: u32,
    /// This replica committed the end.
    is_ended: bool,
    expires_ms: u64,
}

/// The result of the first poll after the end.
#[derive(Debug, PartialEq, Eq)]
struct FirstSight {
    polls: u32,
    late_ms: u64,
}

impl PollCounts {
    fn entry(&mut self, task: &Task) -> Option<&mut PolledTask> {
        // A task that is followed already counts on, also where there is no room for others.
        if self.tasks.len() >= TASKS_MAX && !self.tasks.contains_key(&task.id) {
            return None;
        }
        let polled = self.tasks.entry(task.id).or_default();
        polled.expires_ms = task.created_ms.saturating_add(task.ttl_ms);
        Some(polled)
    }

    fn ended(&mut self, task: &Task) {
        // A poll saw this end in the store before. Entered now, the task would count as never collected.
        if self.seen.contains(&task.id) {
            return;
        }
        if let Some(polled) = self.entry(task) {
            polled.is_ended = true;
        }
    }

    /// Counts a poll. Returns what it showed, if it is the first that saw the end.
    fn polled(&mut self, task: &Task, now_ms: u64) -> Option<FirstSight> {
        if !task.is_ended() {
            if let Some(polled) = self.entry(task) {
                polled.polls = polled.polls.saturating_add(1);
            }
            return None;
        }
        // Removed, so that only the first poll after the end counts.
        let polled = self.tasks.remove(&task.id)?;
        self.seen.truncate(SEEN_MAX - 1);
        self.seen.push_front(task.id);
        Some(FirstSight {
            polls: polled.polls.saturating_add(1),
            late_ms: now_ms.saturating_sub(task.updated_ms),
        })
    }

    /// Forgets the tasks that have expired. Returns how many of them this replica ended and no client saw.
    fn expire(&mut self, now_ms: u64) -> u64 {
        let mut unseen = 0;
        self.tasks.retain(|_, polled| {
            let stays = now_ms < polled.expires_ms;
            unseen += u64::from(!stays && polled.is_ended);
            stays
        });
        unseen
    }
}

/// Notes that this replica committed the end of a task that its client was notified of.
pub(super) fn ended(task: &Task) {
    POLLS.lock().get_or_insert_default().ended(task);
}

/// Notes that a client receives the state of a task.
pub fn polled(task: &Task, now_ms: u64) {
    let seen = POLLS.lock().get_or_insert_default().polled(task, now_ms);
    if let Some(FirstSight { polls, late_ms }) = seen {
        let metrics = &METRICS.tasks;
        metrics.polls.observe(f64::from(polls));
        metrics.lateness.observe(seconds(late_ms));
    }
}

/// Counts the tasks that expired before a client saw their end. Call it now and then.
pub fn expire(now_ms: u64) {
    let unseen = POLLS.lock().as_mut().map_or(0, |it| it.expire(now_ms));
    METRICS.tasks.uncollected.inc_by(unseen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    fn ended_at(open: &Task, now_ms: u64) -> Task {
        Task {
            outcome: Some(Outcome::Cancelled),
            updated_ms: now_ms,
            ..open.clone()
        }
    }

    #[test]
    fn the_first_poll_after_the_end_counts_and_no_other() {
        let mut polls = PollCounts::default();
        let open = task(Leg::Sent(1), true);
        let at = open.created_ms;
        assert_eq!(polls.polled(&open, at + 10), None);
        assert_eq!(polls.polled(&open, at + 20), None);
        let ended = ended_at(&open, at + 100);
        polls.ended(&ended);
        let first = FirstSight {
            polls: 3,
            late_ms: 50,
        };
        assert_eq!(polls.polled(&ended, at + 150), Some(first));
        assert_eq!(polls.polled(&ended, at + 160), None);
        // Noted late, after the poll that saw it.
        polls.ended(&ended);
        assert_eq!(polls.polled(&ended, at + 170), None);
        assert_eq!(polls.expire(u64::MAX), 0);
    }

    #[test]
    fn an_end_that_nobody_saw_is_counted_when_it_expires() {
        let mut polls = PollCounts::default();
        let open = task(Leg::Sent(1), true);
        polls.ended(&ended_at(&open, open.created_ms + 1));
        assert_eq!(polls.expire(open.created_ms + open.ttl_ms - 1), 0);
        assert_eq!(polls.expire(open.created_ms + open.ttl_ms), 1);
        assert_eq!(polls.expire(u64::MAX), 0);
        // Polled here, and ended by another replica: that replica counts the task.
        polls.polled(&open, open.created_ms);
        assert_eq!(polls.expire(u64::MAX), 0);
    }

    #[test]
    fn they_are_bounded() {
        let mut polls = PollCounts::default();
        for _ in 0..TASKS_MAX + 10 {
            let other = Task {
                id: TaskId::random(),
                ..task(Leg::Sent(1), true)
            };
            polls.polled(&other, other.created_ms);
        }
        assert_eq!(polls.tasks.len(), TASKS_MAX);
    }
}
