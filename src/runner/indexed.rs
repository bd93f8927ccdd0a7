//! The record of a task that an index of the store names.

use tracing::{debug, warn};

use super::state::Runner;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;

/// The result of reading the record of an index entry.
pub(super) enum IndexedRecord {
    Record(Box<Loaded>),
    Gone,
    /// No raincheck can read the record: nothing can be done for its task.
    Unreadable,
    /// Other replicas can read the record, and handle its task: a newer raincheck wrote it, or it is sealed under a
    /// key that this replica does not have.
    OthersOnly,
}

impl Runner {
    /// Reads the record of an index entry. A record that cannot be read is no error: the sweep goes on with
    /// the other tasks.
    pub(super) async fn read_indexed(&self, id: TaskId) -> Result<IndexedRecord, StoreError> {
        match self.ledger.load(id).await {
            Ok(Some(loaded)) => Ok(IndexedRecord::Record(Box::new(loaded))),
            Ok(None) => Ok(IndexedRecord::Gone),
            Err(error @ (StoreError::Newer | StoreError::UnknownKey)) => {
                debug!(task = ?id, %error, "a record is left to other replicas");
                Ok(IndexedRecord::OthersOnly)
            }
            Err(error @ StoreError::Corrupt(_)) => {
                warn!(task = ?id, %error, "a task cannot be handled; it stays until it expires");
                Ok(IndexedRecord::Unreadable)
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Full)) => Err(error),
        }
    }
}
