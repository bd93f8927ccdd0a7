//! What all connections of a measurement count together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::client::Session;

/// Created tasks that are remembered: enough for modes that ask for tasks, and bounded for those that create for long.
const TASKS_MAX: usize = 200_000;

/// Ids of requests are counted, so that each connection knows the answer to its own.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
pub(crate) struct Tally {
    calls: AtomicU64,
    errors: AtomicU64,
    events: AtomicU64,
    /// The warm-up is over.
    counts: AtomicBool,
    stops: AtomicBool,
    first_error: Mutex<Option<String>>,
    latencies_ns: Mutex<Vec<u64>>,
    prepared: Mutex<Prepared>,
}

/// Tasks that can be asked for, on the session that created them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prepared {
    pub(crate) tasks: Vec<CreatedTask>,
    pub(crate) session: Option<Session>,
}

#[derive(Debug, Clone)]
pub(crate) struct CreatedTask {
    pub(crate) id: String,
    /// What its result says.
    pub(crate) nonce: String,
}

pub(crate) fn next_id() -> u64 {
    LAST_ID.fetch_add(1, Relaxed) + 1
}

impl Tally {
    pub(crate) fn begin_counting(&self) {
        self.counts.store(true, Relaxed);
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.counts.load(Relaxed) && !self.is_stopped()
    }

    pub(crate) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.load(Relaxed)
    }

    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_events(&self, events: u64) {
        if self.is_counting() {
            self.events.fetch_add(events, Relaxed);
        }
    }

    /// Counts an error, after the warm-up, and keeps the text of the first.
    pub(crate) fn fail(&self, error: String) {
        if self.counts.load(Relaxed) {
            self.errors.fetch_add(1, Relaxed);
        }
        lock(&self.first_error).get_or_insert(error);
    }

    pub(crate) fn add_latencies(&self, latencies_ns: &[u64]) {
        lock(&self.latencies_ns).extend_from_slice(latencies_ns);
    }

    pub(crate) fn add_task(&self, task: CreatedTask) {
        let tasks = &mut lock(&self.prepared).tasks;
        if tasks.len() < TASKS_MAX {
            tasks.push(task);
        }
    }

    pub(crate) fn prepare(&self, prepared: Prepared) {
        *lock(&self.prepared) = prepared;
    }

    pub(crate) fn session(&self) -> Option<Session> {
        lock(&self.prepared).session.clone()
    }

    pub(crate) fn tasks(&self) -> Vec<CreatedTask> {
        lock(&self.prepared).tasks.clone()
    }

    /// The task at a place that `draw` chooses.
    pub(crate) fn any_task(&self, draw: u64) -> Option<CreatedTask> {
        let tasks = &lock(&self.prepared).tasks;
        let count = u64::try_from(tasks.len()).ok().filter(|count| *count > 0)?;
        let place = usize::try_from(draw % count).ok()?;
        tasks.get(place).cloned()
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }

    pub(crate) fn first_error(&self) -> Option<String> {
        lock(&self.first_error).clone()
    }

    /// All latencies, from the smallest.
    pub(crate) fn sorted_latencies_ns(&self) -> Vec<u64> {
        let mut latencies = std::mem::take(&mut *lock(&self.latencies_ns));
        latencies.sort_unstable();
        latencies
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
