//! The compare-and-set rule of the port, for the stores that decide inside this process.
//!
//! The Redis store states the same rule in `redis/commit.lua`; the contract suite (`tests/store.rs`)
//! holds both to it.

use super::{Commit, Stored, Version, Write};
use crate::task::id::Revision;

/// Why a write changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unchanged {
    /// The same write, with the same nonce, happened before.
    Repeated(Revision),
    /// Another write came first.
    Conflict,
    /// There is no record to change.
    Gone,
}

/// The revision that `write` creates over the version that was found, or why it changes nothing.
pub(super) fn next_revision(found: Option<Version>, write: &Write) -> Result<Revision, Unchanged> {
    match (found, write.expected) {
        (None, None) => Ok(Revision(1)),
        (None, Some(_)) => Err(Unchanged::Gone),
        // This arm stands before the versions are compared: a write that is repeated after it was done finds its own
        // revision, and not the one that it expects.
        (Some(found), _) if found.nonce == write.nonce => Err(Unchanged::Repeated(found.revision)),
        (Some(found), Some(expected)) if found == expected => {
            Ok(Revision(found.revision.0.saturating_add(1)))
        }
        (Some(_), _) => Err(Unchanged::Conflict),
    }
}

impl Unchanged {
    /// The port's answer. `found` is the record that was compared.
    pub(super) fn into_commit(self, found: Option<Stored>) -> Commit {
        match (self, found) {
            (Self::Repeated(revision), _) => Commit::Done(revision),
            (Self::Conflict, Some(stored)) => Commit::Conflict(stored),
            (Self::Conflict | Self::Gone, _) => Commit::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::Nonce;
    use crate::task::id::{Caller, TaskId};

    fn version(revision: u64, nonce: u128) -> Version {
        Version {
            revision: Revision(revision),
            nonce: Nonce(nonce),
        }
    }

    #[test]
    fn a_write_counts_only_over_the_version_that_it_read() {
        use Unchanged::{Conflict, Gone, Repeated};
        let cases = [
            (None, None, Ok(Revision(1))),
            (None, Some(version(3, 1)), Err(Gone)),
            (Some(version(3, 1)), Some(version(3, 1)), Ok(Revision(4))),
            (
                Some(version(4, 9)),
                Some(version(3, 1)),
                Err(Repeated(Revision(4))),
            ),
            (Some(version(1, 9)), None, Err(Repeated(Revision(1)))),
            (Some(version(1, 1)), None, Err(Conflict)),
            (Some(version(4, 1)), Some(version(3, 1)), Err(Conflict)),
            // The store went back to an older copy: the revision fits, the nonce does not.
            (Some(version(3, 2)), Some(version(3, 1)), Err(Conflict)),
        ];
        for (found, expected, becomes) in cases {
            let write = Write {
                id: TaskId::from_bytes([0; 16]),
                expected,
                nonce: Nonce(9),
                caller: Caller::from_bytes([1; 16]),
                record: Bytes::new(),
                expires_ms: 1,
                due_ms: None,
                drop_from: None,
                keep_for: None,
                request: None,
                history: None,
                durable: false,
                ends: false,
                listed: None,
            };
            assert_eq!(
                next_revision(found, &write),
                becomes,
                "{found:?} {expected:?}"
            );
        }
    }
}
