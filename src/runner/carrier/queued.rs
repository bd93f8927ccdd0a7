//! A leg that waits for its permits. Nothing of the leg is at the server, and the record shows that.

use std::time::Duration;

use tokio::time::Instant;

use super::super::admission::{Admittance, Permits};
use super::super::report::tool_of;
use super::dispatch::Dispatch;
use super::{Audience, Carrier, Flow, Timer};
use crate::store::ledger::ApplyError;
use crate::task::machine::{OwnerEvent, Rejected};
use crate::task::state::Leg;

/// The pause before a leg joins the queue again, after the commit that it goes out failed.
const REQUEUE: Duration = Duration::from_secs(1);

impl Carrier {
    /// Handles the arrival of the leg's permits. The record contains `sent` before the first byte goes out.
    pub(super) async fn on_permits(&mut self, permits: Permits) -> Flow {
        self.dispatch = Dispatch::Ready(permits);
        self.timers.disarm(Timer::QueueMessage);
        // The pending message reports that the call waits, which is no longer true.
        self.forget_progress();
        let Some(recorded) = self.stage.recorded() else {
            self.open();
            return Flow::Continue;
        };
        // If the leg was sent already, an earlier run failed and may be repeated.
        let is_again = matches!(recorded.leg, Leg::Sent(_));
        let goes_out = if is_again {
            OwnerEvent::Repeated
        } else {
            OwnerEvent::Dispatched
        };
        match self.apply(goes_out).await {
            Ok(_) if is_again => self.next_leg(),
            Ok(_) => {
                self.open();
                Flow::Continue
            }
            // An earlier attempt was committed, and the store's answer was lost: no other carrier sends the
            // leg.
            Err(ApplyError::Rejected(Rejected::Unchanged, latest)) => {
                if let Some(recorded) = self.stage.recorded_mut() {
                    recorded.changed(*latest);
                }
                self.open();
                Flow::Continue
            }
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            Err(ApplyError::Gone) => self.on_record_gone().await,
            // Other calls may not need the store: they get the permits until the store is back.
            Err(ApplyError::Store(_)) => {
                self.dispatch = Dispatch::Requeues;
                self.timers.arm(Timer::Requeue, Instant::now() + REQUEUE);
                Flow::Continue
            }
        }
    }

    /// Asks for a place at the server, after the limits.
    pub(super) fn seated(&self, limits: Admittance) -> Admittance {
        let (era, outgoing) = (self.server.era, &self.server.outgoing);
        let pausing = || {
            let tool = tool_of(outgoing).filter(|_| self.is_new())?;
            Some(self.runner.admission.pausing_of(tool))
        };
        limits.with_seat(&self.runner.upstream, Some(era), outgoing, pausing)
    }

    /// Queues the next leg, or sends it at once.
    pub(super) async fn requeue(&mut self) -> Flow {
        // Only calls of tools have limits.
        let admittance = match tool_of(&self.server.outgoing) {
            Some(tool) => {
                let admission = &self.runner.admission;
                let limits = if self.is_new() {
                    admission.queue_new(tool)
                } else {
                    admission.queue(tool)
                };
                self.seated(limits)
            }
            None => Admittance::unlimited(),
        };
        match admittance {
            Admittance::Now(permits) => self.on_permits(permits).await,
            Admittance::Queued(leg) => {
                self.dispatch = Dispatch::Queued(leg);
                self.tell_queue()
            }
        }
    }

    /// Returns `true` if no client waits on its connection for the answer of this carrier.
    pub(super) fn was_told(&self) -> bool {
        match &self.audience {
            Audience::Client(client) => client.responder.was_told(),
            Audience::Maker(_) | Audience::RecordReaders => true,
        }
    }

    /// Returns `true` if another replica can send the call instead of this replica: the client was notified of the
    /// task, and the call needs nothing that only this replica has.
    pub(super) fn may_hand_over(&self) -> bool {
        let Some(recorded) = self.stage.recorded() else {
            return false;
        };
        let was_told = self.was_told();
        let task = recorded.task();
        task.leg == Leg::Queued
            && task.is_wanted()
            && was_told
            && self.server.outgoing.is_anybodys()
            && !self.runner.settings.exclusive_store
    }

    /// Frees the permits of the call: nothing of the call is at the server any more, and nothing will be sent.
    pub(super) fn end_dispatch(&mut self) {
        self.dispatch = Dispatch::Over;
        self.timers.disarm(Timer::QueueMessage);
        self.timers.disarm(Timer::Requeue);
    }
}
