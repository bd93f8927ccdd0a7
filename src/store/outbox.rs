//! The way of a committed task to the jobs that tell receivers of it. What finds no room stays in the record, where a
//! sweep finds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::loaded::Loaded;
use crate::task::notices::ReceiverId;
use crate::task::state::Task;

/// The most tasks that wait for the job of one receiver.
const WAITING_MAX: usize = 256;

/// The queues of the jobs, by receiver.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    queues: Arc<BTreeMap<ReceiverId, mpsc::Sender<Box<Loaded>>>>,
}

/// The tasks that one receiver must hear of.
pub type OutboxQueue = mpsc::Receiver<Box<Loaded>>;

/// The queues of all receivers.
pub type OutboxQueues = BTreeMap<ReceiverId, OutboxQueue>;

/// The room in the queue of a receiver.
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
        let queues = Arc::new(queues);
        (Self { queues }, read)
    }

    pub fn room(&self, receiver: ReceiverId) -> Room {
        match self.queues.get(&receiver) {
            Some(queue) if queue.is_closed() => Room::Unknown,
            Some(queue) if queue.capacity() > 0 => Room::Free,
            Some(_) => Room::None,
            None => Room::Unknown,
        }
    }

    /// Hands the task over to the job of this receiver. Without room, a sweep finds the notice when its claim is over.
    pub fn hand_over(&self, loaded: &Loaded, receiver: ReceiverId) {
        if let Some(Ok(room)) = self.queues.get(&receiver).map(mpsc::Sender::try_reserve) {
            room.send(Box::new(loaded.clone()));
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
            if notices.first().is_some() && !had_one {
                self.hand_over(after, receiver);
            }
        }
    }
}
