//! How a call begins that has its record from the start: what the record is like, who waits for it, and
//! what a client hears whose call can have none.

use tokio::sync::oneshot;

use super::super::seat::Answer;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::ledger::{Loaded, NotCreated};
use crate::task::id::TaskId;
use crate::task::state::WhenLeft;
use crate::upstream::UpstreamError;

/// What the record of a claimed call is like.
#[derive(Debug, Clone, Copy)]
pub(in crate::runner) struct Claimed {
    pub(in crate::runner) id: TaskId,
    /// The record lives at least so long.
    pub(in crate::runner) ttl_ms: u64,
    pub(in crate::runner) when_left: WhenLeft,
    /// Whoever makes the call is told of the task at once, however soon it ends.
    pub(in crate::runner) announced: bool,
}

/// A claimed call whose record is made.
#[derive(Debug)]
pub(in crate::runner) struct Begun {
    pub(in crate::runner) loaded: Loaded,
    /// That the server does not take the caller's credentials, in its own words, which no record
    /// keeps.
    pub(in crate::runner) unauthorized: oneshot::Receiver<UpstreamError>,
}

/// Who waits to hear whether there is a record.
pub(super) type Waiting = oneshot::Sender<Result<Begun, NotCreated>>;

/// What a client hears whose call can have no record.
pub(super) fn not_created(why: &NotCreated, effect: SideEffect) -> Answer {
    match why {
        NotCreated::Quota => Answer::Failed(Failure::new(Reason::Quota, effect)),
        NotCreated::Taken | NotCreated::Store(_) => Answer::StoreUnavailable(effect),
    }
}
