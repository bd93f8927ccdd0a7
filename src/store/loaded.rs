//! A task as the ledger gives it.

use super::Version;
use crate::task::state::Task;

/// A task at one revision.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub task: Task,
    pub version: Version,
    /// A newer raincheck wrote the record. A change by this program would lose the fields that it does
    /// not know.
    pub read_only: bool,
}
