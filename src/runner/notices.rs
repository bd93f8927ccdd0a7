//! Finds the receivers that must still hear of a task, because the replica that changed the task did not tell them in time.

use tracing::debug;

use super::state::Runner;
use crate::store::ledger::{Loaded, Tried};
use crate::store::outbox::Room;
use crate::task::machine::TaskEvent;
use crate::task::notices::{NoticeEvent, Notices};
use crate::telemetry::notices::given_up;

/// For so long a notice is left to replicas that know its receiver.
const OTHERS_FIRST_MS: u64 = 10_000;

impl Runner {
    /// Claims the notices whose time has come, and hands them over to the jobs of their receivers. False: a notice stays
    /// due, because only another replica may know its receiver.
    pub(super) async fn tell_receivers(&self, loaded: &Loaded) -> bool {
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
            let event = match self.ledger.outbox().room(notices.receiver) {
                Room::Free => NoticeEvent::Claimed,
                Room::Unknown if is_left_to_others(&notices, now_ms) => {
                    all = false;
                    continue;
                }
                Room::None | Room::Unknown => NoticeEvent::Postponed { number },
            };
            let event_of = TaskEvent::Notice(notices.receiver, event);
            let Ok(Tried::Done(after, _)) = self.ledger.try_apply(&loaded, event_of).await else {
                // The record changed since it was read, or the store is away: the next sweep finds it again.
                return all;
            };
            let left = after.task.notices_of(notices.receiver);
            if matches!(event, NoticeEvent::Claimed) {
                self.ledger.outbox().hand_over(&after, notices.receiver);
            } else if left.and_then(Notices::first).map(|it| it.number) != Some(number) {
                given_up(&after.task, "not known here, or too slow");
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
