//! The stored standing of a call with a log: the replica that carries the call, and the data that another replica
//! needs to carry it on.

use serde_json::value::RawValue;

use crate::store::ledger::Loaded;
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
    /// The record.
    pub(super) loaded: Loaded,
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
            loaded,
        })
    }
}
