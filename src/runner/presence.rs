//! Tracks the clients, on any replica, that still wait for a call that outlives its client for a while.

use std::sync::Arc;
use std::time::Duration;

use super::state::Runner;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::TaskId;
use crate::task::machine::TaskEvent;
use crate::task::on_disconnect::OnDisconnect;
use crate::task::state::Task;

/// Values expire by the store's clock, which differs a little from this process's clock.
const SLACK: Duration = Duration::from_millis(250);

impl Runner {
    /// Records in the store that a client waits for this call. The replica that the last client left looks
    /// for this value before it cancels the call. Returns the pause until the value must be written again;
    /// `None`: no replica looks for it.
    pub(super) async fn mark_present(&self, task: &Task) -> Option<Duration> {
        let window = window(task.on_disconnect)?;
        let key = presence_key(task.id);
        // If the value is not written, the call may end before its client comes back.
        let _ = self.kv.put(key, "1".into(), window).await;
        presence_pause(task)
    }

    /// Cancels a call whose client went away, unless a client waits for the call on any replica when the window of the
    /// call is over. A call without a window runs to its end.
    pub(super) fn cancel_if_abandoned(self: &Arc<Self>, id: TaskId, on_disconnect: OnDisconnect) {
        let Some(window) = window(on_disconnect) else {
            return;
        };
        let Ok(watched) = Arc::clone(&self.abandoned_watched).try_acquire_owned() else {
            return;
        };
        let runner = Arc::clone(self);
        self.services.spawn(async move {
            let cancelling = async {
                // When a client that waits now goes away, it starts this wait anew. If the store does not
                // answer, whether a client waits is unknown, and the store is asked again after another
                // window.
                loop {
                    tokio::time::sleep(window + SLACK).await;
                    if runner.cancel_abandoned(id).await.is_ok() {
                        return;
                    }
                }
            };
            let cancelling = Box::pin(cancelling);
            // A drain must not wait for the window. The call then runs to its end or to its deadline.
            runner.draining.run_until_cancelled(cancelling).await;
            drop(watched);
        });
    }

    /// Cancels the call if no client waits for it and no client was notified of its task.
    async fn cancel_abandoned(&self, id: TaskId) -> Result<(), StoreError> {
        if self.kv.find(presence_key(id)).await?.is_some() {
            return Ok(());
        }
        match self.ledger.load(id).await? {
            Some(loaded) if !loaded.task.announced => {
                self.cancel_for_disconnect(&loaded).await.map(drop)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Handles the departure of a client of this call before it received an answer, as the record specifies. Returns
    /// the record, if it was read again.
    pub(super) async fn client_left(self: &Arc<Self>, loaded: &Loaded) -> Option<Loaded> {
        match loaded.task.on_disconnect {
            // If the store is away, a sweeper finds the record, or the call ends at its deadline.
            OnDisconnect::Cancel => self.cancel_for_disconnect(loaded).await.ok().flatten(),
            OnDisconnect::KeepFor(_) | OnDisconnect::Keep => {
                self.cancel_if_abandoned(loaded.task.id, loaded.task.on_disconnect);
                None
            }
        }
    }

    /// Returns the record as it stands now; `None`: it is gone.
    pub(super) async fn cancel_for_disconnect(
        &self,
        loaded: &Loaded,
    ) -> Result<Option<Loaded>, StoreError> {
        let event = TaskEvent::Cancel {
            by: CancelledBy::Departure,
        };
        match self.ledger.apply(loaded, event).await {
            Ok((cancelled, _)) => Ok(Some(cancelled)),
            Err(ApplyError::Rejected(_, latest)) => Ok(Some(*latest)),
            Err(ApplyError::Gone) => Ok(None),
            Err(ApplyError::Store(away)) => Err(away),
        }
    }
}

/// The name of the value by which the clients of a call show that they wait.
fn presence_key(id: TaskId) -> Name {
    Name::of(Kind::Claim, &["attended", &id.to_string()])
}

/// The pause between two writes of the value, short enough that no window passes without a write; `None`: no
/// replica looks for the value.
pub(super) fn presence_pause(task: &Task) -> Option<Duration> {
    Some(window(task.on_disconnect)? / 3 + Duration::from_millis(1))
}

/// Returns the time that a call runs on without a client that waits, if its record sets such a time.
fn window(on_disconnect: OnDisconnect) -> Option<Duration> {
    match on_disconnect {
        OnDisconnect::KeepFor(window_ms) => Some(Duration::from_millis(window_ms)),
        OnDisconnect::Cancel | OnDisconnect::Keep => None,
    }
}
