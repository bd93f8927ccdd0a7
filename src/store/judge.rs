//! The one rule of every compare-and-set, for the stores that decide in this process. The commit
//! script of the Redis store says the same in Lua; the contract suite holds them together.

use super::error::StoreError;
use super::{Commit, Stored, Version, Write};
use crate::task::id::Revision;

/// Why nothing has to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// This very write has happened before.
    Repeated(Revision),
    /// Somebody else's write stands.
    Conflict,
    /// There is no record to change.
    Gone,
}

/// The revision that `write` makes of what was found, or why it makes none.
pub(super) fn judge(found: Option<Version>, write: &Write) -> Result<Revision, Settled> {
    match (found, write.expected) {
        (None, None) => Ok(Revision(1)),
        (None, Some(_)) => Err(Settled::Gone),
        (Some(found), _) if found.nonce == write.nonce => Err(Settled::Repeated(found.revision)),
        (Some(found), Some(expected)) if found == expected => {
            Ok(Revision(found.revision.0.saturating_add(1)))
        }
        (Some(_), _) => Err(Settled::Conflict),
    }
}

impl Settled {
    /// The port's answer; `found` is what stands, and there is something when it conflicts.
    pub(super) fn into_commit(self, found: Option<Stored>) -> Commit {
        match (self, found) {
            (Self::Repeated(revision), _) => Commit::Done(revision),
            (Self::Conflict, Some(stored)) => Commit::Conflict(stored),
            (Self::Conflict | Self::Gone, _) => Commit::Gone,
        }
    }
}

/// Thirty-two bytes from the operating system.
pub(super) fn random_key() -> Result<[u8; 32], StoreError> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(|error| StoreError::Unavailable(error.into()))?;
    Ok(key)
}
