//! Selects the subscriptions of clients that are notified of a task (`task/events/subscriptions`).

use std::sync::Arc;

use tracing::{debug, warn};

use super::state::Runner;
use crate::store::StoreError;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::events::replay::{Replay, SubscribedNotices, WantedNotices};
use crate::task::events::subscriptions::Subscriptions;
use crate::task::machine::TaskEvent;
use crate::task::notices::Notices;
use crate::task::state::Task;

impl Runner {
    /// Returns the entries of the record of a new task for the subscriptions of its caller. They are in the record
    /// from its beginning, so that the commit which ends the task also names the receivers that must be notified of
    /// it.
    pub(super) async fn subscribed(&self, task: &Task) -> Result<Vec<Notices>, StoreError> {
        let Some(store) = &self.subscriptions else {
            return Ok(Vec::new());
        };
        match store.of(&task.caller).await {
            Ok(all) => {
                let wanted = self.wanted_by(&all, task).into_iter();
                Ok(wanted.map(|it| it.notices).collect())
            }
            // A call is worth more than its events.
            Err(error @ (StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey)) => {
                warn!(task = ?task.id, %error, "the subscriptions of a caller cannot be read: none of them hears of this task");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    fn wanted_by(&self, all: &Subscriptions, task: &Task) -> Vec<WantedNotices> {
        let rules = self.rules();
        let needed = &rules.for_tool(&task.name).0.scopes;
        all.notices_of(task, needed, self.ledger.now_ms())
    }

    /// Puts the subscriptions of its caller on a task that exists already. Those of `replay` are notified of its
    /// present state, too.
    pub async fn subscribe(
        &self,
        loaded: &Loaded,
        all: &Subscriptions,
        replay: Replay,
    ) -> Result<(), ApplyError> {
        let wanted = self.wanted_by(all, &loaded.task);
        let event = TaskEvent::Subscribed(SubscribedNotices { wanted, replay });
        match self.ledger.apply(loaded, event).await {
            // These errors count as success, because a further attempt ends in the same way: the task takes no change,
            // is gone, or was written by a newer version.
            Ok(_)
            | Err(
                ApplyError::Rejected(..) | ApplyError::Gone | ApplyError::Store(StoreError::Newer),
            ) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks again once the task is in its caller's list. A client that subscribes writes its subscription before it reads the
    /// list, so one of the two sees the other. The task may have ended by now.
    pub(super) fn subscribe_late(self: &Arc<Self>, loaded: &Loaded) {
        let Some(store) = self.subscriptions.clone() else {
            return;
        };
        let (runner, loaded) = (Arc::clone(self), loaded.clone());
        self.spawn_tracked(async move {
            let looked = async {
                let all = store.of(&loaded.task.caller).await?;
                runner.subscribe(&loaded, &all, Replay::ToAll).await
            };
            if let Err(why) = looked.await {
                debug!(task = ?loaded.task.id, ?why, "a new subscription may not hear of a new task");
            }
        });
    }
}
