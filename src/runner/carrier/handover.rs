//! A call that goes on without this carrier: this replica leaves the call to another replica, or another
//! replica took it over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::admission::Admittance;
use super::super::{leg, taken_up};
use super::dispatch::{Dispatch, LegOrigin};
use super::{Audience, Carrier, Flow, RecordedCall, Timer};
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::Reason;
use crate::store::ledger::ApplyError;
use crate::task::machine::OwnerEvent;
use crate::task::state::{Reach, Task};
use crate::upstream::Forwarded;

/// The pause before this replica tries again to leave a call to others, after the store did not take the
/// commit.
const HAND_OVER_AGAIN: Duration = Duration::from_millis(500);

impl Carrier {
    /// The grace period is over: a call that another replica can carry on is left to that replica.
    pub(super) async fn on_halted(&mut self) -> Flow {
        let recorded = self.stage.recorded();
        let may_leave = recorded.is_some_and(|recorded| self.may_leave(recorded.task()));
        if !may_leave && !self.may_hand_over() {
            return self.give_up(Reason::Shutdown).await;
        }
        match self.apply(OwnerEvent::Released).await {
            Ok(_) => self.released().await,
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            // Only this replica cannot reach the store: other replicas find the call as that of a lost owner.
            Err(ApplyError::Store(_)) if self.is_resumable() => {
                self.leave();
                Flow::Done
            }
            Err(ApplyError::Gone | ApplyError::Store(_)) => self.give_up(Reason::Shutdown).await,
        }
    }

    async fn released(&mut self) -> Flow {
        hit(Point::Released);
        if let Some(recorded) = self.stage.recorded()
            && recorded.task().waits_for_client()
        {
            taken_up::note_waiting(recorded.task());
        }
        self.step_back().await
    }

    /// The server refuses the client's credentials, and the call runs on there: another request of the client may bring better
    /// ones, to any replica.
    pub(super) async fn on_credentials_refused(&mut self) -> Flow {
        let recorded = self.stage.recorded();
        // Where the credential itself is the caller, no other one can come.
        let can_wait = self.runner.settings.renews_credentials
            && recorded.is_some_and(|recorded| {
                let task = recorded.task();
                task.needs_client() && task.is_wanted()
            })
            && !self.has_waiting_client();
        if !can_wait {
            return Flow::Continue;
        }
        if let (Some(recorded), Some(credentials)) =
            (self.stage.recorded(), &self.server.outgoing.credentials)
        {
            let taken_up = &self.runner.taken_up;
            taken_up.refused(recorded.task().id, credentials);
        }
        match self.apply(OwnerEvent::Released).await {
            Ok(_) => self.released().await,
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            Err(ApplyError::Gone) => self.on_record_gone().await,
            // The server refuses the next request, too.
            Err(ApplyError::Store(_)) => Flow::Continue,
        }
    }

    /// The drain begins: a call that waits for its turn is left to another replica at once. If the store is
    /// away, the carrier tries again until the grace period is over.
    pub(super) async fn on_draining(&mut self) -> Flow {
        match self.apply(OwnerEvent::Released).await {
            Ok(_) => self.released().await,
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            Err(ApplyError::Gone) => self.on_record_gone().await,
            Err(ApplyError::Store(error)) => {
                warn!(%error, "a waiting call is not yet left to other replicas");
                // Without a pause the loop would come back here at once, because the token of the drain stays
                // cancelled.
                let at = Instant::now() + HAND_OVER_AGAIN;
                self.timers.arm(Timer::HandOver, at);
                Flow::Continue
            }
        }
    }

    /// Returns `true` if the client waits on the connection of its call, over which it can show nothing else.
    fn has_waiting_client(&self) -> bool {
        match &self.audience {
            Audience::Client(_) => true,
            Audience::Maker(maker) => !maker.is_closed(),
            Audience::RecordReaders => false,
        }
    }

    fn is_resumable(&self) -> bool {
        let recorded = self.stage.recorded();
        recorded.is_some_and(|recorded| recorded.task().resume.is_some())
    }

    fn may_leave(&self, task: &Task) -> bool {
        let settings = &self.runner.settings;
        let others_reach_it = settings.reach == Reach::Shared && !settings.exclusive_store;
        others_reach_it && task.is_wanted() && (task.resume.is_some() || task.is_repeatable())
    }

    /// Returns `true` if another replica, or the next process on this store, follows the job of the call as well as this one, so
    /// that a drain need not wait for it.
    pub(super) fn moves_at_once(&self) -> bool {
        if !self.was_told() {
            return false;
        }
        let exchange = self.dispatch.exchange();
        let recorded = self.stage.recorded();
        exchange.is_some_and(|exchange| exchange.control.moves_at_once())
            && recorded.is_some_and(|recorded| {
                let task = recorded.task();
                // A resume point is sealed, and a store in memory has no key: this one outlives the process.
                let next_goes_on = self.runner.settings.exclusive_store && task.is_wanted();
                task.resume.is_some() && (next_goes_on || self.may_leave(task))
            })
    }

    /// Lets go of the call. If another replica carries the call on, the server is not notified; otherwise the server
    /// is notified that no client waits.
    pub(super) async fn step_back(&mut self) -> Flow {
        if self.is_carried_on() {
            self.leave();
        } else {
            self.cancel_upstream().await;
        }
        Flow::Done
    }

    /// Returns `true` if another replica needs what this one began at the server.
    fn is_carried_on(&self) -> bool {
        // A start that another replica sends again by its key has the same job.
        let is_sent_again = |recorded: &RecordedCall| self.has_key() && recorded.is_left();
        let recorded = self.stage.recorded();
        recorded.is_some_and(|it| it.is_carried_on() || is_sent_again(it))
    }

    /// Lets go of the leg without a word to the server.
    fn leave(&mut self) {
        if let Dispatch::Open(leg) = self.dispatch.take() {
            leg.exchange.control.leave();
        }
    }

    /// Sends a call that is safe to repeat again, after a run that came to nothing. `None`: the call
    /// cannot be repeated.
    pub(super) async fn repeat(&mut self) -> Option<Flow> {
        let task = self.stage.recorded()?.task();
        if !task.is_repeatable() {
            return None;
        }
        let limits = if self.dispatch.origin() == Some(LegOrigin::Adopted) {
            // A carrier that adopted the call has no request of it, only the rest of its stream.
            let stored = self.runner.ledger.load_request(task.id).await.ok()??;
            let outgoing = leg::next(&stored, task, Forwarded::default()).ok()?;
            // The replica that sent an adopted leg holds its permits.
            let limits = self.runner.admission.queue(&task.name);
            self.server.outgoing = Arc::new(outgoing);
            limits
        } else {
            Admittance::Now(self.dispatch.take_permits())
        };
        let permits = match self.seated(limits) {
            Admittance::Now(permits) => permits,
            Admittance::Queued(leg) => {
                // The repeat is committed in `on_permits`, when the leg has its turn.
                self.dispatch = Dispatch::Queued(leg);
                self.timers.arm(Timer::QueueMessage, Instant::now());
                return Some(Flow::Continue);
            }
        };
        match self.apply(OwnerEvent::Repeated).await {
            Ok(_) => {
                self.dispatch = Dispatch::Ready(permits);
                Some(self.next_leg())
            }
            Err(ApplyError::Rejected(_, latest)) => Some(self.act_on(*latest).await),
            // Without this commit the call must not go out again: another replica may have taken it over.
            Err(ApplyError::Gone | ApplyError::Store(_)) => None,
        }
    }
}
