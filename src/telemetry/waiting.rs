//! The tasks that wait for their client's answers. Each is counted by the replica that changed it last, so that the sum over
//! all replicas is their number.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::metrics::METRICS;
use crate::base::lock::Mutex;
use crate::base::prehashed::PrehashedMap;
use crate::task::id::{Revision, TaskId};
use crate::task::state::{Status, Task};

/// The most tasks that are counted: 10 MiB.
const TASKS_MAX: usize = 100_000;

static WAITING: LazyLock<Mutex<WaitingTasks>> = LazyLock::new(Mutex::default);

/// A task that waits.
#[derive(Debug)]
struct Entry {
    /// The change that this process made last.
    revision: Revision,
    since: Instant,
    /// When the store forgets the task.
    until: Instant,
}

#[derive(Debug, Default)]
struct WaitingTasks(PrehashedMap<TaskId, Entry>);

/// Notes a change that this replica committed. The wait is as old as the oldest open question, whichever party asked
/// it.
pub fn committed(task: &Task, revision: Revision, now_ms: u64) {
    let waits = task.announced && task.status() == Status::InputRequired;
    let life = Duration::from_millis(task.expires_ms().saturating_sub(task.updated_ms));
    let asked_ms = task.open_questions().map(|(it, _)| it.asked_ms).min();
    let waited = Duration::from_millis(now_ms.saturating_sub(asked_ms.unwrap_or(now_ms)));
    let mut waiting = WAITING.lock();
    if waits {
        waiting.enter(task.id, revision, Instant::now(), waited, life);
    } else {
        waiting.0.remove(&task.id);
    }
}

/// Notes a change of any replica. The replica that made it counts the task from then on.
pub fn changed(id: TaskId, revision: Revision) {
    WAITING.lock().leave(id, revision);
}

/// Writes the number and the longest wait into the metrics.
pub fn measure() {
    let (count, oldest) = WAITING.lock().count(Instant::now());
    let metrics = &METRICS.tasks.waiting;
    metrics.count.set(i64::try_from(count).unwrap_or(i64::MAX));
    let seconds = i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX);
    metrics.oldest_seconds.set(seconds);
}

impl WaitingTasks {
    fn enter(
        &mut self,
        id: TaskId,
        revision: Revision,
        now: Instant,
        waited: Duration,
        life: Duration,
    ) {
        let known = self.0.get(&id);
        // A task that is counted already is updated, also where there is no room for others.
        if known.is_none() && self.0.len() >= TASKS_MAX {
            return;
        }
        // A wait may be longer than this machine runs, and then no instant stands for its beginning.
        let asked = now.checked_sub(waited).unwrap_or(now);
        let since = known.map_or(asked, |known| known.since.min(asked));
        let entry = Entry {
            revision,
            since,
            until: now + life,
        };
        self.0.insert(id, entry);
    }

    fn leave(&mut self, id: TaskId, revision: Revision) {
        // The change log has the commits of this replica, too. Their revision is the one that is noted already.
        if self
            .0
            .get(&id)
            .is_some_and(|known| known.revision < revision)
        {
            self.0.remove(&id);
        }
    }

    fn count(&mut self, now: Instant) -> (usize, Duration) {
        // A task that expires leaves without a commit, so no change shows its end.
        self.0.retain(|_, entry| entry.until > now);
        let waits = self.0.values();
        let oldest = waits.map(|entry| now.saturating_duration_since(entry.since));
        (self.0.len(), oldest.max().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_counts_until_somebody_changes_it_or_it_is_forgotten() {
        let mut waiting = WaitingTasks::default();
        let from = Instant::now();
        let second = |number| from + Duration::from_secs(number);
        let (minute, ten) = (Duration::from_mins(1), Duration::from_secs(10));
        let (first, other) = (TaskId::random(), TaskId::random());
        waiting.enter(first, Revision(2), from, Duration::ZERO, minute);
        waiting.enter(other, Revision(5), second(3), Duration::ZERO, ten);
        assert_eq!(waiting.count(second(4)), (2, Duration::from_secs(4)));
        // The change log tells of the own change, too, and may be late.
        waiting.leave(first, Revision(2));
        assert_eq!(waiting.count(second(4)).0, 2);
        // The second of two questions is open, and the wait goes on.
        waiting.enter(first, Revision(3), second(5), Duration::ZERO, minute);
        assert_eq!(waiting.count(second(6)), (2, Duration::from_secs(6)));
        waiting.leave(first, Revision(4));
        assert_eq!(waiting.count(second(6)), (1, Duration::from_secs(3)));
        assert_eq!(waiting.count(second(13)), (0, Duration::ZERO));
    }

    #[test]
    fn a_replica_that_takes_a_task_over_counts_the_whole_wait() {
        let mut waiting = WaitingTasks::default();
        let now = Instant::now() + Duration::from_hours(1);
        let (waited, life) = (Duration::from_mins(20), Duration::from_hours(1));
        waiting.enter(TaskId::random(), Revision(9), now, waited, life);
        assert_eq!(waiting.count(now), (1, waited));
    }
}
