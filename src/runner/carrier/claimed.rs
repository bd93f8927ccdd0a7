//! A call that stands for a claim: its record comes first, and clients follow that, whoever made
//! the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::turn::Turn;
use super::super::{Announce, Call, Runner};
use super::Carrier;
use crate::store::ledger::{Loaded, NotCreated};
use crate::task::id::TaskId;
use crate::task::policy::Plan;
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

impl Carrier {
    pub(in crate::runner) fn for_claim(
        runner: Arc<Runner>,
        call: Call,
        turn: Turn,
        claimed: Claimed,
        waiting: Waiting,
    ) -> Self {
        // Whoever follows the record decides when and how it is announced, if it is not from the start.
        let call = Call {
            plan: Plan::Held,
            announce: Announce::Task,
            ..call
        };
        Self {
            claimed: Some(claimed),
            begun: Some(waiting),
            ..Self::for_client(runner, call, None, turn)
        }
    }

    /// Makes the record. False: there is none, and nothing is sent.
    pub(super) async fn begin(&mut self, waiting: Waiting) -> bool {
        // A client that went away meanwhile may come back with the same call, as any later.
        let announced = self
            .claimed
            .as_ref()
            .is_some_and(|claimed| claimed.announced);
        if let Err(why) = self.keep(Vec::new(), announced).await {
            let _ = waiting.send(Err(why));
            return false;
        }
        if let Some(kept) = &self.kept {
            let (first, unauthorized) = oneshot::channel();
            let loaded = kept.loaded.clone();
            let (id, when_left) = (loaded.task.id, loaded.task.when_left);
            self.first = Some(first);
            let begun = Begun {
                loaded,
                unauthorized,
            };
            if waiting.send(Ok(begun)).is_err()
                && let WhenLeft::RunsFor(window_ms) = when_left
            {
                let window = Duration::from_millis(window_ms);
                self.runner.linger(id, window);
            }
        }
        true
    }
}
