//! How near each limit was to refusing anything: the highest use since the start, beside the limit itself. The parts that
//! hold the limits write here, and the metrics read it.

use std::sync::atomic::{AtomicU64, Ordering};

pub static CALLS: LimitFill = LimitFill::of("limits.calls");
pub static CALLS_PER_CALLER: LimitFill = LimitFill::of("limits.calls_per_caller");
pub static REQUESTS_PER_CALLER: LimitFill = LimitFill::of("limits.requests_per_caller");
pub static CONNECTIONS: LimitFill = LimitFill::of("limits.connections");
pub static HELD_POLLS: LimitFill = LimitFill::of("limits.held_polls");
pub static BUFFER_BYTES: LimitFill = LimitFill::of("limits.buffer_bytes_max");
pub static TASKS: LimitFill = LimitFill::of("limits.tasks");
pub static TASKS_PER_CALLER: LimitFill = LimitFill::of("limits.tasks_per_caller");
pub static TASK_BYTES: LimitFill = LimitFill::of("limits.task_bytes");
pub static TASK_BYTES_PER_CALLER: LimitFill = LimitFill::of("limits.task_bytes_per_caller");
pub static SESSIONS: LimitFill = LimitFill::of("upstream.sessions_max");
pub static CHILDREN: LimitFill = LimitFill::of("upstream.children_max");

/// Every limit whose use is noted.
pub static ALL: [&LimitFill; 12] = [
    &CALLS,
    &CALLS_PER_CALLER,
    &REQUESTS_PER_CALLER,
    &CONNECTIONS,
    &HELD_POLLS,
    &BUFFER_BYTES,
    &TASKS,
    &TASKS_PER_CALLER,
    &TASK_BYTES,
    &TASK_BYTES_PER_CALLER,
    &SESSIONS,
    &CHILDREN,
];

/// The use of one limit.
#[derive(Debug)]
pub struct LimitFill {
    /// The name of the setting.
    pub setting: &'static str,
    /// 0: no part of this process has the limit.
    max: AtomicU64,
    highest: AtomicU64,
}

impl LimitFill {
    const fn of(setting: &'static str) -> Self {
        Self {
            setting,
            max: AtomicU64::new(0),
            highest: AtomicU64::new(0),
        }
    }

    /// Notes the limit, at the start and when it changes.
    pub fn set_limit(&self, max: usize) {
        self.max.store(max as u64, Ordering::Relaxed);
    }

    /// Notes that so much is in use now.
    pub fn reached(&self, used: usize) {
        let used = used as u64;
        // The load alone writes nothing, so threads do not wait for each other unless there is a new maximum.
        if used > self.highest.load(Ordering::Relaxed) {
            self.highest.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// The limit and the highest use. `None`: this process does not have the limit.
    pub fn read(&self) -> Option<(u64, u64)> {
        let max = self.max.load(Ordering::Relaxed);
        (max > 0).then(|| (max, self.highest.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_use_stays() {
        let fill = LimitFill::of("a");
        fill.reached(3);
        assert_eq!(fill.read(), None, "nothing has this limit");
        fill.set_limit(4);
        fill.reached(1);
        assert_eq!(fill.read(), Some((4, 3)));
        fill.set_limit(2);
        assert_eq!(fill.read(), Some((2, 3)), "it was lowered meanwhile");
    }

    #[test]
    fn no_setting_is_listed_twice() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|it| it.setting).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
