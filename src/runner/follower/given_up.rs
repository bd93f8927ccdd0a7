//! A client that collected a call which was given up, or that shares one: what becomes of the call when it leaves.

use tracing::debug;

use super::{CallFollower, GivenUpCall};
use crate::mcp::result;
use crate::runner::call_claim::{CallClaim, Sharing};
use crate::runner::waiting::WaitingClient;
use crate::task::state::{Outcome, Payload};

impl CallFollower {
    /// Handles a client that leaves a call which it collected, without its answer. If it cancelled the call, the call is not
    /// kept for its window.
    pub(super) async fn left(&mut self, (claim, clock): GivenUpCall, client: &WaitingClient) {
        let (runner, loaded) = (&self.runner, &self.loaded);
        if runner.halt.is_cancelled() {
            runner.left_again((&claim, None), &loaded.task).await;
        } else if client.gave_up() {
            let clock = client.rung_clock(clock);
            runner.left_again((&claim, clock), &loaded.task).await;
        } else if claim.sharing().is_some() && !self.shared.leave() {
            // Another client waits.
        } else if runner.cancel_for_disconnect(loaded).await.is_err() {
            // The store did not take the cancel. This looks again after each window, until the store answers.
            runner.cancel_if_abandoned(loaded.task.id, loaded.task.on_disconnect);
        }
    }

    /// Leaves the call to the next same call. Returns `true` if that can collect it.
    pub(super) async fn is_left_for_now(&self) -> bool {
        match &self.given_up {
            // No clock rang: what is known of it must not be confirmed by its own effect.
            Some((claim, _)) => {
                let left = self.runner.left_again((claim, None), &self.loaded.task);
                left.await
            }
            None => false,
        }
    }

    /// Lets the same call, which the client sent again, join this one.
    pub(super) async fn on_sent_again(&mut self, client: &WaitingClient) {
        // They look for the claim as soon as these are dropped.
        let sent_again = client.responder.note().take_sent_again();
        let Some((claim, _)) = self.given_up.filter(|_| !sent_again.is_empty()) else {
            return;
        };
        let sharing = claim.sharing().unwrap_or(Sharing {
            keeps_result: false,
        });
        if let (Some(claim), Some(given_up)) = (claim.shared(sharing), &mut self.given_up) {
            given_up.0 = claim;
            self.leave_claim(&claim).await;
        }
    }

    /// Returns `true` for a result that one more try may collect: a good one, of a tool without effects.
    pub(super) fn keeps_result(&self, claim: &CallClaim) -> bool {
        let is_good = match &self.loaded.task.outcome {
            Some(Outcome::Completed(Payload::Inline(result))) => {
                !result::is_tool_error(result.get())
            }
            Some(Outcome::Completed(Payload::Kept { is_error, .. })) => !is_error,
            Some(Outcome::Failed(_) | Outcome::Cancelled) | None => false,
        };
        is_good && claim.sharing().is_some_and(|sharing| sharing.keeps_result)
    }

    pub(super) async fn leave_claim(&self, claim: &CallClaim) {
        let task = &self.loaded.task;
        let written = self
            .runner
            .write_claim(claim, task.id, task.on_disconnect)
            .await;
        if let Err(error) = written {
            debug!(%error, "a call cannot be joined");
        }
    }
}
