//! The path of a committed task to the jobs that notify its receivers. A task that finds no room stays in the record,
//! where a sweep finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::loaded::Loaded;
use crate::task::id::TaskId;
use crate::task::notices::{Notices, ReceiverId};
use crate::task::state::Task;

/// The most tasks that wait for the job of one receiver.
const WAITING_MAX: usize = 256;

/// A sweep takes no notice where more tasks wait: the lease would run out before its turn.
const SWEPT_MAX: usize = 16;

/// The lease of the first notice of one receiver. The record is read when its turn comes: it may be large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoticeLease {
    pub task: TaskId,
    pub receiver: ReceiverId,
    /// The end of the lease, which also distinguishes it from the leases of other replicas.
    pub look_ms: u64,
}

/// The queues of the jobs, by receiver.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    queues: Arc<BTreeMap<ReceiverId, mpsc::Sender<NoticeLease>>>,
    /// The queue of all subscriptions of clients, where clients can subscribe.
    subscriptions: Option<mpsc::Sender<NoticeLease>>,
}

/// The tasks that one receiver must be notified of.
pub type OutboxQueue = mpsc::Receiver<NoticeLease>;

/// The queues of all receivers.
pub type OutboxQueues = BTreeMap<ReceiverId, OutboxQueue>;

/// The room in the queue of a receiver for what a sweep finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Free,
    None,
    /// This replica has no such receiver, or ends.
    Unknown,
}

impl Outbox {
    /// A queue for each receiver.
    pub fn new(receivers: impl Iterator<Item = ReceiverId>) -> (Self, OutboxQueues) {
        let (mut queues, mut read) = (BTreeMap::new(), BTreeMap::new());
        for receiver in receivers {
            let (queue, waiting) = mpsc::channel(WAITING_MAX);
            queues.insert(receiver, queue);
            read.insert(receiver, waiting);
        }
        let outbox = Self {
            queues: Arc::new(queues),
            subscriptions: None,
        };
        (outbox, read)
    }

    /// The same, and a queue for the subscriptions of clients.
    #[must_use]
    pub fn with_subscriptions(self) -> (Self, OutboxQueue) {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let outbox = Self {
            subscriptions: Some(queue),
            ..self
        };
        (outbox, waiting)
    }

    fn queue(&self, receiver: ReceiverId) -> Option<&mpsc::Sender<NoticeLease>> {
        if receiver.is_subscription() {
            self.subscriptions.as_ref()
        } else {
            self.queues.get(&receiver)
        }
    }

    pub fn room(&self, receiver: ReceiverId) -> Room {
        match self.queue(receiver) {
            // The job has ended, because this replica ends: another replica may notify the receiver.
            Some(queue) if queue.is_closed() => Room::Unknown,
            Some(queue) if WAITING_MAX - queue.capacity() < SWEPT_MAX => Room::Free,
            Some(_) => Room::None,
            None => Room::Unknown,
        }
    }

    /// Hands the notice over to the job of this receiver. Without room, a sweep finds the notice when its lease is over.
    pub fn hand_over(&self, task: &Task, receiver: ReceiverId) {
        let look_ms = task.notices_of(receiver).and_then(Notices::look_ms);
        if let (Some(queue), Some(look_ms)) = (self.queue(receiver), look_ms) {
            let _ = queue.try_send(NoticeLease {
                task: task.id,
                receiver,
                look_ms,
            });
        }
    }

    /// Hands a committed task over to the receivers whose first notice the commit made. `before` is `None` for a new
    /// record.
    pub(super) fn committed(&self, before: Option<&Task>, after: &Loaded) {
        for notices in &after.task.notices {
            let receiver = notices.receiver;
            let had_one = before
                .and_then(|before| before.notices_of(receiver))
                .is_some_and(|before| before.first().is_some());
            // Notices go in their order: the job that settles the one before goes on to this one.
            if notices.first().is_some() && !had_one {
                self.hand_over(&after.task, receiver);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::cancelled_by::CancelledBy;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::machine::{self, TaskEvent};
    use crate::task::notices::NoticeState;
    use crate::task::state::Leg;

    #[test]
    fn a_sweep_leaves_room_for_what_is_new() {
        let receiver = ReceiverId::of("https://hooks.example/in");
        let (outbox, mut queues) = Outbox::new([receiver].into_iter());
        let notices = Notices::new(receiver, NoticeState::ALL.to_vec(), 60_000);
        let mut open = task(Leg::Sent(1), true);
        open.notices = vec![notices];
        let ended = machine::step(
            &open,
            TaskEvent::Cancel {
                by: CancelledBy::Client,
            },
            NOW,
        );
        let ended = ended.unwrap().task;
        for _ in 0..SWEPT_MAX {
            assert_eq!(outbox.room(receiver), Room::Free);
            outbox.hand_over(&ended, receiver);
        }
        assert_eq!(outbox.room(receiver), Room::None);
        for _ in 0..WAITING_MAX {
            outbox.hand_over(&ended, receiver);
        }
        let mut queue = queues.remove(&receiver).unwrap();
        assert_eq!(queue.len(), WAITING_MAX);
        let lease = queue.try_recv().unwrap();
        assert_eq!(Some(lease.look_ms), ended.look_ms());
        drop(queue);
        assert_eq!(outbox.room(receiver), Room::Unknown);
    }
}
