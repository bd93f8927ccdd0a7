//! The terms of a record that do not follow from its call, and what the client that asked for the record
//! gets.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::runner::state::Runner;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::on_disconnect::OnDisconnect;
use crate::upstream::UpstreamError;

/// The terms of a record that do not follow from its call.
#[derive(Debug, Clone, Copy)]
pub(in crate::runner) struct RecordTerms {
    pub(in crate::runner) id: TaskId,
    /// The shortest life of the record.
    pub(in crate::runner) ttl_ms: u64,
    pub(in crate::runner) on_disconnect: OnDisconnect,
    /// `true` if the client that made the call is notified of the task at once, however soon it ends.
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
    /// Receives the server's refusal of the caller's credentials, in the server's words, which no record keeps.
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
    /// `None`: a client follows the record.
    on_disconnect: Option<OnDisconnect>,
}

impl Unfollowed {
    pub(super) fn new(runner: Arc<Runner>, terms: &RecordTerms) -> Self {
        Self {
            runner,
            id: terms.id,
            on_disconnect: Some(terms.on_disconnect),
        }
    }

    fn defuse(mut self) {
        self.on_disconnect = None;
    }
}

impl Drop for Unfollowed {
    fn drop(&mut self) {
        if let Some(on_disconnect) = self.on_disconnect {
            self.runner.cancel_if_abandoned(self.id, on_disconnect);
        }
    }
}
