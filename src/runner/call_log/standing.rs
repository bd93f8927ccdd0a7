//! The stored standing of a call with a log: the replica that carries the call, and the data that another replica
//! needs to carry it on.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::store::ledger::Loaded;
use crate::store::record::TELLS_ALL;
use crate::task::digest::Digest;
use crate::task::id::Incarnation;
use crate::task::log_terms::LogTerms;
use crate::task::state::Outcome;

/// The replica that carries a call, according to the store.
#[derive(Debug)]
pub struct CallStanding {
    /// The replica that carries the call. `None`: it left the call to another replica, or was lost.
    pub owner: Option<Incarnation>,
    /// The log is complete, or the call was ended without a last entry.
    pub is_over: bool,
    /// The error with which the call was ended, where the log has no last entry.
    pub error: Option<Box<RawValue>>,
    pub terms: LogTerms,
    /// The record. `None`: an earlier version carries the call, and only that version can carry it on.
    pub(super) loaded: Option<Loaded>,
}

impl CallStanding {
    /// `None`: the record is of no call with a log.
    pub(super) fn of(loaded: Loaded) -> Option<Self> {
        let task = &loaded.task;
        let terms = task.log.as_deref()?.clone();
        let error = match &task.outcome {
            Some(Outcome::Failed(error)) => Some(error.clone()),
            Some(Outcome::Completed(_) | Outcome::Cancelled) | None => None,
        };
        Some(Self {
            owner: task.owner.clone(),
            is_over: task.is_ended(),
            error,
            terms,
            loaded: Some(loaded),
        })
    }

    /// Returns the owner, if it [notifies](crate::store::kv::KvStore::append) other replicas of each entry that it
    /// writes: an earlier version does not.
    pub fn owner_that_tells(&self) -> Option<&Incarnation> {
        let owner = self.owner.as_ref().filter(|_| self.loaded.is_some());
        owner.filter(|owner| owner.reads() >= Some(TELLS_ALL))
    }

    /// Returns `true` if another replica can carry the call on.
    pub fn can_be_taken_over(&self) -> bool {
        self.loaded.is_some() && !self.is_over
    }

    /// Reads what an earlier version wrote beside a log: its calls have no records.
    pub(super) fn of_earlier(note: &[u8]) -> Option<Self> {
        let note: EarlierNote = serde_json::from_slice(note).ok()?;
        Some(Self {
            owner: Some(Incarnation::from_text(&note.owner)),
            is_over: note.is_over,
            error: None,
            terms: LogTerms {
                // The name of the note has the session in it.
                session: Digest::of(&[]),
                id: note.id,
                began_ms: note.began_ms,
                ends_ms: note.terms.ends_ms,
                retention_ms: note.terms.retention_ms,
                bytes_max: note.terms.bytes_max,
                heartbeat: note.heartbeat,
                point: None,
            },
            loaded: None,
        })
    }
}

#[derive(Debug, Deserialize)]
struct EarlierNote {
    owner: Box<str>,
    id: Box<RawValue>,
    began_ms: u64,
    terms: EarlierLimits,
    #[serde(default)]
    heartbeat: Option<Box<RawValue>>,
    #[serde(default)]
    is_over: bool,
}

#[derive(Debug, Deserialize)]
struct EarlierLimits {
    ends_ms: u64,
    retention_ms: u64,
    bytes_max: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_an_earlier_version_is_known_and_not_taken_over() {
        let note = br#"{"owner":"a/1","id":"x","began_ms":7,"terms":{"ends_ms":9,"retention_ms":1,"bytes_max":2},"point":{"behind":1,"sealed":"s"},"is_over":false}"#;
        let standing = CallStanding::of_earlier(note).unwrap();
        assert_eq!(standing.owner, Some(Incarnation::from_text("a/1")));
        assert_eq!(
            (standing.terms.id.get(), standing.is_over),
            ("\"x\"", false)
        );
        assert!(!standing.can_be_taken_over());
        assert!(standing.owner_that_tells().is_none());
        assert!(CallStanding::of_earlier(b"1 {}").is_none());
    }
}
