//! What the record of a call is like beyond its call, and what those hear who asked for it.

use tokio::sync::oneshot;

use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::state::OnDisconnect;
use crate::upstream::UpstreamError;

/// What a record is like beyond its call.
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

/// A claimed call whose record is made.
#[derive(Debug)]
pub(in crate::runner) struct Begun {
    pub(in crate::runner) loaded: Loaded,
    /// Tells that the server refused the caller's credentials, in the server's words, which no record
    /// keeps.
    pub(in crate::runner) unauthorized: oneshot::Receiver<UpstreamError>,
}
