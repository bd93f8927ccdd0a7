//! Watches: a dirty mark notifies a component that a task changed. The mark does not carry the change itself.
//!
//! One task per process follows the store's change log and sets the marks. The component that watches
//! reads the record itself, when it can use it: the cost does not grow with the size of the change.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::base::lock::Mutex;
use crate::store::{ChangeEvent, Changes};
use crate::task::id::TaskId;
use crate::telemetry::waiting;

/// The pause before a record that changed and could not be read is read again.
pub(super) const RELOAD: Duration = Duration::from_secs(1);

/// All watches of this process.
#[derive(Debug, Default)]
pub struct Watches {
    by_task: Mutex<HashMap<TaskId, Vec<Arc<Marks>>>>,
}

#[derive(Debug, Default)]
struct Marks {
    dirty: Mutex<BTreeSet<TaskId>>,
    stopped: AtomicBool,
    notify: Notify,
}

/// Tasks that are marked again, and when.
#[derive(Debug)]
struct MarkedAgain {
    at: Instant,
    tasks: BTreeSet<TaskId>,
}

/// Stops the component that watches, whatever it watches.
#[derive(Debug, Clone)]
pub(super) struct Stopper(Arc<Marks>);

/// A watch over some tasks; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    watches: Arc<Watches>,
    tasks: Vec<TaskId>,
    marks: Arc<Marks>,
    /// Boxed, because few watches have it.
    again: Mutex<Option<Box<MarkedAgain>>>,
}

impl Watches {
    fn by_task(&self) -> MutexGuard<'_, HashMap<TaskId, Vec<Arc<Marks>>>> {
        self.by_task.lock()
    }

    fn remove(&self, id: TaskId, marks: &Arc<Marks>) {
        let mut by_task = self.by_task();
        if let Some(watching) = by_task.get_mut(&id) {
            watching.retain(|other| !Arc::ptr_eq(other, marks));
            if watching.is_empty() {
                by_task.remove(&id);
            }
        }
    }

    /// Watches these tasks from now on: a change committed after this returns is seen.
    pub fn watch(self: &Arc<Self>, tasks: Vec<TaskId>) -> Watch {
        let marks = Arc::new(Marks::default());
        let mut by_task = self.by_task();
        for id in &tasks {
            // Most tasks have one watch, and thousands may run.
            let watching = by_task.entry(*id).or_insert_with(|| Vec::with_capacity(1));
            watching.push(Arc::clone(&marks));
        }
        drop(by_task);
        Watch {
            watches: Arc::clone(self),
            tasks,
            marks,
            again: Mutex::default(),
        }
    }

    /// Follows the change log until the store closes.
    pub async fn follow(&self, mut changes: Changes) {
        loop {
            match changes.next().await {
                ChangeEvent::Changed(change) => {
                    self.mark(change.id);
                    waiting::changed(change.id, change.revision);
                }
                // It is unknown which records changed, so every watched record has to be read again.
                ChangeEvent::Missed => self.mark_all(),
                ChangeEvent::Closed => return,
            }
        }
    }

    fn mark(&self, id: TaskId) {
        let by_task = self.by_task();
        for marks in by_task.get(&id).into_iter().flatten() {
            marks.mark(id);
        }
    }

    fn mark_all(&self) {
        let by_task = self.by_task();
        for (id, watching) in by_task.iter() {
            for marks in watching {
                marks.mark(*id);
            }
        }
    }
}

impl Marks {
    fn mark(&self, id: TaskId) {
        // The mark comes before the notification, so that a watch that wakes always finds it.
        self.dirty.lock().insert(id);
        self.notify.notify_one();
    }

    fn take_first(&self) -> Option<TaskId> {
        let mut dirty = self.dirty.lock();
        let first = dirty.pop_first();
        if dirty.is_empty() {
            // An empty tree keeps its last node, and most watches wait for hours.
            *dirty = BTreeSet::new();
        }
        first
    }
}

impl Stopper {
    pub(super) fn stop(&self) {
        // The mark comes before the notification here, too.
        self.0.stopped.store(true, Ordering::Relaxed);
        self.0.notify.notify_one();
    }

    /// Returns `true` if both stop the same watch.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Watch {
    /// Watches this task, too: a change committed after this returns is seen.
    pub fn also(&mut self, id: TaskId) {
        self.tasks.push(id);
        let mut by_task = self.watches.by_task();
        by_task.entry(id).or_default().push(Arc::clone(&self.marks));
    }

    /// Keeps only those of its tasks that are in `kept`.
    pub fn keep_only(&mut self, kept: &[TaskId]) {
        let kept: BTreeSet<TaskId> = kept.iter().copied().collect();
        for id in std::mem::take(&mut self.tasks) {
            if !kept.contains(&id) {
                self.watches.remove(id, &self.marks);
            }
        }
        self.marks.dirty.lock().retain(|id| kept.contains(id));
        self.tasks = kept.into_iter().collect();
    }

    /// No longer watches this task.
    pub fn no_more(&mut self, id: TaskId) {
        self.tasks.retain(|task| *task != id);
        self.watches.remove(id, &self.marks);
        self.marks.dirty.lock().remove(&id);
        if let Some(again) = &mut *self.again.lock() {
            again.tasks.remove(&id);
        }
    }

    /// Marks the task at once, as if it had changed.
    pub fn mark(&self, id: TaskId) {
        self.marks.mark(id);
    }

    /// Marks the task again after a pause: its change could not be read, or not be used yet.
    pub fn mark_again(&self, id: TaskId) {
        let mut again = self.again.lock();
        let later = || {
            Box::new(MarkedAgain {
                at: Instant::now() + RELOAD,
                tasks: BTreeSet::new(),
            })
        };
        again.get_or_insert_with(later).tasks.insert(id);
    }

    /// The next task that changed since it was last returned here. A stop that was noted counts as not noted after this.
    ///
    /// Cancel safe: dropped before it resolves, no mark is lost.
    pub async fn changed(&self) -> TaskId {
        loop {
            if let Some(id) = self.changed_or_stopped().await {
                return id;
            }
        }
    }

    pub(super) fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.marks))
    }

    /// Returns `true`, once, if a [`Stopper`] was used.
    pub(super) fn is_stopped(&self) -> bool {
        self.marks.stopped.swap(false, Ordering::Relaxed)
    }

    /// The next task that changed since it was last returned here. `None`, once and before all changes: a [`Stopper`] was used.
    ///
    /// Cancel safe: dropped before it resolves, no mark is lost.
    pub(super) async fn changed_or_stopped(&self) -> Option<TaskId> {
        loop {
            if self.is_stopped() {
                return None;
            }
            // The marks are checked before each wait, because any number of them leaves only one permit.
            if let Some(id) = self.marks.take_first() {
                return Some(id);
            }
            let again_at = self.again.lock().as_ref().map(|again| again.at);
            let notified = self.marks.notify.notified();
            let Some(again_at) = again_at else {
                notified.await;
                continue;
            };
            // Boxed, because there are many watches, and few have a record that cannot be read.
            if Box::pin(timeout_at(again_at, notified)).await.is_err()
                && let Some(again) = self.again.lock().take()
            {
                self.marks.dirty.lock().extend(again.tasks);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for id in &self.tasks {
            self.watches.remove(*id, &self.marks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_read_is_marked_again_after_a_pause() {
        let watches = Arc::new(Watches::default());
        let (a, b) = (TaskId::random(), TaskId::random());
        let mut watch = watches.watch(vec![a, b]);
        let began = Instant::now();
        watch.mark_again(a);
        watches.mark(b);
        assert_eq!(watch.changed().await, b);
        assert_eq!(Instant::now(), began);
        assert_eq!(watch.changed().await, a);
        assert_eq!(Instant::now() - began, RELOAD);
        watch.mark_again(a);
        watch.no_more(a);
        let changed = tokio::time::timeout(RELOAD * 2, watch.changed());
        assert!(changed.await.is_err(), "it is not watched any more");
    }

    #[tokio::test]
    async fn marks_are_coalesced_and_end_with_the_watch() {
        let watches = Arc::new(Watches::default());
        let (a, b) = (TaskId::random(), TaskId::random());
        let watch = watches.watch(vec![a, b]);
        watches.mark(a);
        watches.mark(a);
        watches.mark(TaskId::random());
        assert_eq!(watch.changed().await, a);
        watches.mark_all();
        let both = BTreeSet::from([watch.changed().await, watch.changed().await]);
        assert_eq!(both, BTreeSet::from([a, b]));
        let mut watch = watch;
        watch.no_more(a);
        watches.mark_all();
        assert_eq!(watch.changed().await, b);
        watch.also(a);
        watches.mark(a);
        assert_eq!(watch.changed().await, a);
        watch.keep_only(&[a]);
        assert_eq!(watches.by_task().len(), 1, "nobody watches the other");
        watches.mark_all();
        assert_eq!(watch.changed().await, a);
        drop(watch);
        assert!(watches.by_task.lock().is_empty());
    }
}
