//! Finds the receivers that must still be notified of a task, because the replica that changed the task did not
//! notify them in time.

use tracing::debug;

use super::state::Runner;
use crate::store::ledger::{Loaded, Tried};
use crate::store::outbox::Room;
use crate::task::machine::TaskEvent;
use crate::task::notices::{NoticeEvent, Notices, ReceiverId};
use crate::task::state::Task;
use crate::telemetry::notices::given_up;

/// A replica that does not know the receiver of a notice leaves the notice to other replicas for this long.
const OTHERS_FIRST_MS: u64 = 10_000;

/// The most notices that one sweep claims or puts off, of each kind. Each is a commit, and other tasks wait for their turn.
pub(super) const SWEPT_MAX: usize = 64;

/// The kinds of receivers that must be notified of a task now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DueKinds {
    configured: bool,
    subscribed: bool,
}

impl DueKinds {
    pub(super) fn of(task: &Task, now_ms: u64) -> Self {
        let due = || task.notices.iter().filter(|it| it.is_due(now_ms));
        Self {
            configured: due().any(|notices| !notices.receiver.is_subscription()),
            subscribed: due().any(|notices| notices.receiver.is_subscription()),
        }
    }
}

/// The number of notices that a sweep may still claim or put off. The notices of subscriptions are counted
/// separately, so that the receivers of clients that do not answer leave those of operators their turn.
#[derive(Debug)]
pub(super) struct NoticesLeft {
    configured: usize,
    subscribed: usize,
}

impl NoticesLeft {
    /// So many of each kind.
    pub(super) fn of_each(number: usize) -> Self {
        Self {
            configured: number,
            subscribed: number,
        }
    }

    /// Takes out what is kept for tasks that wait already: of each kind one notice for each task, and half at most.
    pub(super) fn take_for(&mut self, waiting: impl Iterator<Item = DueKinds>) -> Self {
        let mut kept = Self::of_each(0);
        for kinds in waiting {
            kept.configured += usize::from(kinds.configured);
            kept.subscribed += usize::from(kinds.subscribed);
        }
        kept.configured = kept.configured.min(self.configured / 2);
        kept.subscribed = kept.subscribed.min(self.subscribed / 2);
        self.configured -= kept.configured;
        self.subscribed -= kept.subscribed;
        kept
    }

    pub(super) fn give_back(&mut self, kept: &Self) {
        self.configured += kept.configured;
        self.subscribed += kept.subscribed;
    }

    /// Returns `true` if a notice of one of these kinds may still be claimed or put off.
    pub(super) fn has_some(&self, kinds: DueKinds) -> bool {
        kinds.configured && self.configured > 0 || kinds.subscribed && self.subscribed > 0
    }

    pub(super) fn of(&mut self, receiver: ReceiverId) -> &mut usize {
        if receiver.is_subscription() {
            &mut self.subscribed
        } else {
            &mut self.configured
        }
    }
}

impl Runner {
    /// Claims the notices whose time has come, and hands them over to the jobs of their receivers. False: a notice stays due.
    pub(super) async fn tell_receivers(&self, loaded: &Loaded, left: &mut NoticesLeft) -> bool {
        if loaded.task.notices.is_empty() {
            return true;
        }
        let (mut loaded, mut all) = (loaded.clone(), true);
        for notices in loaded.task.notices.clone() {
            let now_ms = self.ledger.now_ms();
            let Some(number) = notices.first().map(|first| first.number) else {
                continue;
            };
            if !notices.is_due(now_ms) {
                continue;
            }
            let left = left.of(notices.receiver);
            let Some(fewer) = left.checked_sub(1) else {
                all = false;
                continue;
            };
            let event = match self.ledger.outbox().room(notices.receiver) {
                Room::Free => NoticeEvent::Claimed,
                Room::Unknown if is_left_to_others(&notices, now_ms) => {
                    all = false;
                    continue;
                }
                // This moves the task back in the due index, so that its receiver keeps no other task waiting.
                Room::None | Room::Unknown => NoticeEvent::Postponed { number },
            };
            let event_of = TaskEvent::Notice(notices.receiver, event);
            // Counted before the commit, because an attempt that fails costs the store as much.
            *left = fewer;
            let after = match self.ledger.try_apply(&loaded, event_of).await {
                Ok(Tried::Done(after, _)) => after,
                // Who changed the record has looked at it: the next sweep reads it again if a notice is still due.
                Ok(Tried::Conflict(_)) => return all,
                // The record is full, or only another replica can write it. It must not keep others waiting.
                Err(_) => return false,
            };
            let next = after.task.notices_of(notices.receiver);
            if next.and_then(Notices::first).map(|it| it.number) != Some(number) {
                // This replica may not know the receiver.
                given_up(&after.task, notices.receiver, None);
            } else if matches!(event, NoticeEvent::Claimed) {
                self.ledger
                    .outbox()
                    .hand_over(&after.task, notices.receiver);
            } else {
                debug!(task = ?after.task.id, "a webhook is put off");
            }
            loaded = *after;
        }
        all
    }
}

fn is_left_to_others(notices: &Notices, now_ms: u64) -> bool {
    let look_ms = notices.look_ms().unwrap_or_default();
    now_ms < look_ms.saturating_add(OTHERS_FIRST_MS)
}
