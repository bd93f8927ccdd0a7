//! A call that stands for a claim: its record comes first, and clients follow that, whoever made
//! the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::call::{Announce, Call};
use super::super::state::Runner;
use super::super::turn::Turn;
use super::Carrier;
use super::begun::{Begun, Claimed, Waiting};
use crate::task::policy::Plan;
use crate::task::state::WhenLeft;

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
