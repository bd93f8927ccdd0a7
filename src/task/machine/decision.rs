//! The decisions of the machine about an event: a changed task and the effect that follows, or the reason why nothing
//! changes.

use crate::task::state::Task;

/// The action of the committer after the commit. The record leads the next replica that loads it to the same action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Pass the undelivered answers on to the open call of a legacy server.
    Deliver,
    /// Dispatch a leg: the next leg of a modern call with all answers of the round, or the same leg again.
    Dispatch,
    /// Fetch the answer of the call that still runs at the server.
    Resume,
    /// Notify the server that no client waits.
    CancelUpstream,
}

/// A decided change.
#[derive(Debug, Clone)]
pub struct Step {
    pub task: Task,
    pub effect: Option<Effect>,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The task has ended; that never changes.
    Ended,
    /// Another owner carries the call now.
    NotOwner,
    /// There is nothing to change. This is no fault.
    Unchanged,
    /// The server asks more questions than a task may have.
    TooManyQuestions,
    /// The server ended its leg with questions while questions of that leg are open, which no revision
    /// allows; or the server asks although nothing was sent.
    OutOfTurn,
}
