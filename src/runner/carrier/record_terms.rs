//! The terms of a record that do not follow from its call, and what the client that asked for the record
//! gets.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::runner::state::Runner;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::state::OnDisconnect;
use crate::upstream::UpstreamError;

/// The terms of a record that do not follow from its call.
#[derive(Debug, Clone, Copy)]
pub(in crate::runner) struct RecordTerms {
    pub(in crate::runner) id: TaskId,
    /// The shortest life of the record.
    pub(in crate::runner) ttl_ms: u64,
    pub(in crate::runner) on_disconnect: OnDisconnect,
    /// The client that made the call hears of the task at once, however soon it ends.
    pub(in crate::runner) announced: bool,
}

impl RecordTerms {
    /// The record of a call that its client waits for on its own connection.
    pub(super) fn of_call(announced: bool) -> Self {
        Self {
            id: TaskId::random(),
            ttl_ms: 0,
            on_disconnect: OnDisconnect::Cancel,
            announced,
        }
    }
}

/// The record of a claimed call, before its client follows it. If this is dropped before the client follows
/// the record, the client went away, and the call is treated like any call that its last client left.
#[derive(Debug)]
pub(in crate::runner) struct ClaimedRecord {
    pub(super) loaded: Loaded,
    /// Tells that the server refused the caller's credentials, in the server's words, which no record
    /// keeps.
    pub(super) unauthorized: oneshot::Receiver<UpstreamError>,
    pub(super) unfollowed: Unfollowed,
}

impl ClaimedRecord {
    /// Gives the record to a client that follows it from now on.
    pub(in crate::runner) fn followed(self) -> (Loaded, oneshot::Receiver<UpstreamError>) {
        self.unfollowed.defuse();
        (self.loaded, self.unauthorized)
    }
}

/// Cancels a call that no client began to follow, when its window is over and still no client waits.
#[derive(Debug)]
pub(super) struct Unfollowed {
    runner: Arc<Runner>,
    id: TaskId,
    /// `None`: the call runs to its end, with or without a client.
    window: Option<Duration>,
}

impl Unfollowed {
    pub(super) fn new(runner: Arc<Runner>, terms: &RecordTerms) -> Self {
        let window = match terms.on_disconnect {
            OnDisconnect::KeepFor(window_ms) => Some(Duration::from_millis(window_ms)),
            OnDisconnect::Cancel | OnDisconnect::Keep => None,
        };
        Self {
            runner,
            id: terms.id,
            window,
        }
    }

    fn defuse(mut self) {
        self.window = None;
    }
}

impl Drop for Unfollowed {
    fn drop(&mut self) {
        if let Some(window) = self.window {
            self.runner.cancel_if_abandoned(self.id, window);
        }
    }
}
