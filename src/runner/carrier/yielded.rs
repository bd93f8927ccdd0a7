//! A call that goes on without this carrier: left to another replica, or taken over by one.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::{Carrier, Flow, Kept};
use crate::failpoint::{Point, hit};
use crate::mcp::error::Reason;
use crate::store::ledger::NotApplied;
use crate::task::machine::OwnerEvent;
use crate::task::state::{Leg, Reach, Task};
use crate::upstream::Forwarded;

/// A store that did not take that a call is left to others is asked again after so long.
const HAND_OVER_AGAIN: Duration = Duration::from_millis(500);

impl Carrier {
    /// The grace period is over: what another replica can carry on is left to it.
    pub(super) async fn on_halted(&mut self) -> Flow {
        let can_leave = self
            .kept
            .as_ref()
            .is_some_and(|kept| self.may_leave(&kept.loaded.task) || self.may_hand_over());
        if !can_leave {
            return self.give_up(Reason::Shutdown).await;
        }
        match self.apply(OwnerEvent::Released).await {
            Ok(_) => self.released().await,
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            // Only our own way to the store is broken: others find it as a lost owner's.
            Err(NotApplied::Store(_)) if self.is_resumable() => {
                if let Some(exchange) = self.exchange.take() {
                    exchange.control.leave();
                }
                Flow::Done
            }
            Err(NotApplied::Gone | NotApplied::Store(_)) => self.give_up(Reason::Shutdown).await,
        }
    }

    async fn released(&mut self) -> Flow {
        hit(Point::Released);
        self.step_back().await
    }

    /// The drain begins: a call that waits is left to another replica at once. A store that is away
    /// is asked again until the grace period is over.
    pub(super) async fn on_draining(&mut self) -> Flow {
        match self.apply(OwnerEvent::Released).await {
            Ok(_) => self.released().await,
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            Err(NotApplied::Gone) => self.lost().await,
            Err(NotApplied::Store(error)) => {
                warn!(%error, "a call that waits is not yet left to others");
                self.hand_over_at = Instant::now() + HAND_OVER_AGAIN;
                Flow::Continue
            }
        }
    }

    fn is_resumable(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.loaded.task.resume.is_some())
    }

    fn may_leave(&self, task: &Task) -> bool {
        let settings = &self.runner.settings;
        let others_reach_it = settings.reach == Reach::Shared && !settings.exclusive_store;
        others_reach_it && task.is_wanted() && (task.resume.is_some() || task.is_repeatable())
    }

    /// Another replica is the owner now.
    pub(super) async fn displaced(&mut self) -> Flow {
        self.step_back().await
    }

    /// Lets go of the call: silently where it is carried on elsewhere, and else the server is told
    /// that nobody waits here.
    async fn step_back(&mut self) -> Flow {
        let carried_on = self.kept.as_ref().is_some_and(Kept::is_carried_on);
        if carried_on {
            if let Some(exchange) = self.exchange.take() {
                exchange.control.leave();
            }
        } else {
            self.cancel_upstream().await;
        }
        Flow::Done
    }

    /// The client cancels while the store is away: the server is told now, the record when the
    /// store is back.
    pub(super) async fn on_stopped(&mut self) -> Flow {
        self.cancel_upstream().await;
        let Some(kept) = &self.kept else {
            return Flow::Done;
        };
        self.runner.finish_cancelled(&kept.loaded).await;
        Flow::Done
    }

    /// A run that came to nothing, of a call that is safe to repeat, goes out again.
    pub(super) async fn repeat(&mut self) -> Option<Flow> {
        let task = &self.kept.as_ref()?.loaded.task;
        if !task.is_repeatable() {
            return None;
        }
        if self.adopted {
            let stored = self.runner.ledger.load_request(task.id).await.ok()??;
            self.call.outgoing =
                super::super::leg::next(&stored, task, Forwarded::default()).ok()?;
            // Its places were those of the replica that sent it.
            self.turn = self.runner.gates.queue(&task.name);
            if self.turn.waits() {
                self.adopted = false;
                self.exchange = None;
                self.look_ahead = Some(Instant::now());
                return Some(Flow::Continue);
            }
        }
        match self.apply(OwnerEvent::Repeated).await {
            Ok(_) => {
                self.adopted = false;
                self.follows = false;
                self.exchange = None;
                Some(self.next_leg())
            }
            Err(NotApplied::Rejected(_, stands)) => Some(self.see(*stands).await),
            Err(NotApplied::Gone | NotApplied::Store(_)) => None,
        }
    }
}

impl Kept {
    /// The very call that this carrier sent is somebody else's now.
    fn is_carried_on(&self) -> bool {
        let task = &self.loaded.task;
        let is_resumed = task.fence != self.fence && task.leg == self.leg;
        let may_be = task.released && task.resume.is_some();
        matches!(self.leg, Leg::Sent(_)) && (is_resumed || may_be)
    }
}
