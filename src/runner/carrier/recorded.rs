//! The record of a call after it was made: followed, changed, resumable.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::dispatch::LegOrigin;
use super::{Carrier, Flow, Timer};
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::SideEffect;
use crate::mcp::input;
use crate::mcp::version::Era;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::machine::{Effect, OwnerEvent, TaskEvent};
use crate::task::policy::OnOwnerLost;
use crate::task::resume_point::ResumePoint;
use crate::task::state::Task;
use crate::upstream;

/// A call that is answered sooner never needs its resume point.
const RESUMABLE_AFTER: Duration = Duration::from_millis(100);

/// The pause before a resume point is committed again that the store did not take.
const RESUMABLE_AGAIN: Duration = Duration::from_secs(2);

impl Carrier {
    /// The sealed point from which another process could carry the call on.
    pub(super) fn resume_point(&self, task: &Task) -> Option<ResumePoint> {
        // Such a call is never resumed, so its session need not get into the store.
        if task.on_owner_lost == OnOwnerLost::Fail || !self.server.outgoing.can_move() {
            return None;
        }
        let point = self.dispatch.exchange()?.control.resume_point()?;
        Some(ResumePoint {
            sealed: self.runner.seal(task, &point)?,
            needs_client: self.server.outgoing.is_personal(),
        })
    }

    /// The call started a job at the server. The record that is made later names it from its start, and so does the resume point,
    /// which must not wait for another commit.
    pub(super) async fn on_job(&mut self, job: Box<str>) -> Flow {
        hit(Point::JobStarted);
        self.job = Some(job.clone());
        let recorded = self.stage.recorded();
        if recorded.is_none_or(|recorded| self.resume_point(recorded.task()).is_some()) {
            return Flow::Continue;
        }
        match self.apply(OwnerEvent::JobStarted(job)).await {
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            // The id is for operators only.
            Ok(_) | Err(ApplyError::Gone | ApplyError::Store(_)) => Flow::Continue,
        }
    }

    /// Another process can carry the call on from here. Arms the commit of that, which a call that ends soon never needs.
    pub(super) fn on_resumable(&mut self, keep: upstream::Keep) -> Flow {
        let now = Instant::now();
        let recorded = self.stage.recorded();
        if recorded.is_some_and(|recorded| recorded.task().resume.is_none()) {
            let at = match keep {
                upstream::Keep::Soon => now + RESUMABLE_AFTER,
                upstream::Keep::AtOnce => now,
            };
            self.timers.arm(Timer::ResumePoint, at);
            return Flow::Continue;
        }
        // A record that is made later has the point from its start, and a newer point goes with the next progress.
        self.timers.disarm(Timer::ResumePoint);
        if keep == upstream::Keep::AtOnce && self.timers.at(Timer::GraceWindow).is_some() {
            self.timers.arm(Timer::GraceWindow, now);
        }
        Flow::Continue
    }

    pub(super) async fn commit_resume_point(&mut self) -> Flow {
        let recorded = self.stage.recorded();
        let Some(point) = recorded.and_then(|recorded| self.resume_point(recorded.task())) else {
            return Flow::Continue;
        };
        let job = self.job.clone();
        match self.apply(OwnerEvent::Resumable { point, job }).await {
            Err(ApplyError::Rejected(_, latest)) => self.act_on(*latest).await,
            // Without the resume point only other replicas cannot carry the call on; this carrier is not
            // affected.
            Err(ApplyError::Store(_)) => {
                let at = Instant::now() + RESUMABLE_AGAIN;
                self.timers.arm(Timer::ResumePoint, at);
                Flow::Continue
            }
            Ok(_) => {
                if self.job.is_some() {
                    hit(Point::JobStored);
                }
                Flow::Continue
            }
            Err(ApplyError::Gone) => Flow::Continue,
        }
    }

    /// The record changed, here or on another replica.
    pub(super) async fn on_change(&mut self) -> Flow {
        let Some(recorded) = self.stage.recorded() else {
            return Flow::Continue;
        };
        match self.runner.ledger.load(recorded.task().id).await {
            Ok(Some(loaded)) => self.act_on(loaded).await,
            Ok(None) => self.on_record_gone().await,
            Err(_) => {
                self.look_again();
                Flow::Continue
            }
        }
    }

    /// Does what the record asks of this carrier.
    pub(super) async fn act_on(&mut self, loaded: Loaded) -> Flow {
        let Some(recorded) = self.stage.recorded_mut() else {
            return Flow::Continue;
        };
        recorded.loaded = loaded;
        let task = recorded.task();
        if task.fence != recorded.fence || task.released || task.waits_for_client() {
            return self.step_back().await;
        }
        if task.is_ended() {
            self.cancel_upstream().await;
            self.commit_told().await;
            return Flow::Done;
        }
        self.deliver().await
    }

    /// Passes the client's answers on to the open call of a legacy server.
    pub(super) async fn deliver(&mut self) -> Flow {
        // A modern server's questions end its leg: their answers go with the next one.
        let follows = self.dispatch.origin() == Some(LegOrigin::Followed);
        if self.server.era == Era::Modern && !follows {
            return Flow::Continue;
        }
        let (Some(recorded), Some(exchange)) = (self.stage.recorded(), self.dispatch.exchange())
        else {
            return Flow::Continue;
        };
        let control = Arc::clone(&exchange.control);
        let answers: Vec<_> = recorded
            .task()
            .undelivered()
            .map(|(q, answer)| (q.key.clone(), q.origin.clone(), for_server(answer)))
            .collect();
        for (key, origin, answer) in answers {
            match control.answer(&origin, answer).await {
                Ok(()) => {}
                // The answer was not sent. The call still waits for it, and the server may be back soon.
                Err(failure) if failure.effect == SideEffect::None => {
                    self.look_again();
                    return Flow::Continue;
                }
                Err(failure) => return self.end_unanswered(failure).await,
            }
            hit(Point::Delivered);
            // If the commit fails, the same answer is sent again, which is harmless. A carrier that is no
            // longer the owner learns that from the change of the record.
            let _ = self.apply(OwnerEvent::Delivered { key }).await;
        }
        Flow::Continue
    }

    fn look_again(&self) {
        if let Some(recorded) = self.stage.recorded() {
            recorded.custody.look_again();
        }
    }

    /// Applies the rule of the record for a client that went away before it received an answer.
    pub(super) async fn commit_left(&mut self) {
        if let Some(recorded) = self.stage.recorded_mut()
            && let Some(latest) = self.runner.client_left(&recorded.loaded).await
        {
            // `commit_told` reads from it whether the server must be notified.
            recorded.loaded = latest;
        }
    }

    /// Commits that the server was notified, if the record asks for that.
    pub(super) async fn commit_told(&mut self) {
        let recorded = self.stage.recorded();
        if recorded.is_some_and(|recorded| recorded.task().must_tell) {
            // If the commit fails, the reconcile of this replica makes up for it.
            let _ = self.apply(OwnerEvent::Told).await;
        }
    }

    pub(super) async fn apply(&mut self, event: OwnerEvent) -> Result<Option<Effect>, ApplyError> {
        self.apply_with(event, None).await
    }

    pub(super) async fn apply_with(
        &mut self,
        event: OwnerEvent,
        request: Option<Bytes>,
    ) -> Result<Option<Effect>, ApplyError> {
        let Some(recorded) = self.stage.recorded_mut() else {
            return Err(ApplyError::Gone);
        };
        let event = TaskEvent::Owner(recorded.fence, event);
        let ledger = &self.runner.ledger;
        let brings_request = request.is_some();
        let applied = ledger.apply_with(&recorded.loaded, event, request);
        let (loaded, effect) = applied.await?;
        recorded.changed(loaded);
        // Changed behind the commit, because a commit that failed has not brought the request to the store.
        recorded.lacks_request &= !brings_request;
        Ok(effect)
    }
}

fn for_server(answer: &RawValue) -> upstream::Answer {
    match input::refused(answer) {
        Some(error) => upstream::Answer::Refused(error.get().into()),
        None => upstream::Answer::Result(answer.get().into()),
    }
}
