//! The record of a call: made, announced, followed, changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::leg;
use super::super::request_state::input_required;
use super::super::seat::Answer;
use super::{Carrier, Charge, Flow, Kept};
use crate::failpoint::{Point, hit};
use crate::mcp::error::SideEffect;
use crate::mcp::input;
use crate::mcp::version::Era;
use crate::store::ledger::{Loaded, NotApplied, NotCreated, Tried};
use crate::task::id::{Fence, TaskId};
use crate::task::machine::{CancelReason, Effect, Event, OwnerEvent, Step, step};
use crate::task::policy::OnOwnerLost;
use crate::task::state::{Leg, Task, WhenLeft};
use crate::upstream;

/// A change that could not be read is read again after so long, and an answer that could not be sent
/// is sent again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A call that is answered sooner never needs it.
const RESUMABLE_AFTER: Duration = Duration::from_millis(100);

impl Carrier {
    /// Makes the record of this call, with what has happened to it already.
    pub(super) async fn keep(
        &mut self,
        events: Vec<OwnerEvent>,
        announced: bool,
    ) -> Result<(), NotCreated> {
        let runner = Arc::clone(&self.runner);
        let mut task = self.new_task(announced);
        for event in events {
            let decided = step(&task, Event::Owner(task.fence, event), task.created_ms);
            task = decided.map_or(task, |Step { task, .. }| task);
        }
        // A modern server asks for the request again, with the answers in it; what waits may be sent
        // by another replica.
        let may_repeat = task.on_owner_lost == OnOwnerLost::Rerun || task.leg == Leg::Queued;
        let request = match self.call.era {
            Era::Modern => Some(leg::store(&self.call.outgoing)?),
            Era::Legacy if may_repeat => Some(leg::store(&self.call.outgoing)?),
            Era::Legacy => None,
        };
        let id = task.id;
        let charge = Charge::of(&runner, &task);
        let loaded = match runner.ledger.create(task, request).await {
            Ok(loaded) => loaded,
            Err(why @ (NotCreated::Taken | NotCreated::Quota)) => return Err(why),
            Err(NotCreated::Store(why)) => {
                drop(charge);
                runner.doubt(id);
                return Err(why.into());
            }
        };
        let _ = self.carried.set(id);
        self.window = None;
        self.deadline = Instant::now() + Duration::from_millis(self.call.rule.max_duration_ms);
        self.resumable = None;
        let pin = self.call.outgoing.pin.as_ref();
        self.kept = Some(Kept::new(loaded, charge, pin));
        self.look_ahead_later();
        Ok(())
    }

    pub(super) fn new_task(&self, announced: bool) -> Task {
        let (rule, now_ms) = (&self.call.rule, self.runner.ledger.now_ms());
        let claimed = self.claimed.as_ref();
        let mut task = Task {
            id: claimed.map_or_else(TaskId::random, |claimed| claimed.id),
            caller: self.call.caller,
            method: (&*self.call.outgoing.method).into(),
            name: self
                .call
                .outgoing
                .name
                .as_deref()
                .unwrap_or_default()
                .into(),
            created_ms: now_ms,
            updated_ms: now_ms,
            deadline_ms: now_ms.saturating_add(rule.max_duration_ms),
            ttl_ms: claimed
                .map_or(0, |claimed| claimed.ttl_ms)
                .max(rule.ttl_ms()),
            poll_interval_ms: rule.poll_interval_ms,
            input_timeout_ms: rule.input_timeout_ms,
            announced,
            listed: self.call.listed,
            when_left: claimed.map_or(WhenLeft::Cancelled, |claimed| claimed.when_left),
            digest: (!announced).then_some(self.call.digest),
            owner: Some(self.runner.incarnation.clone()),
            fence: Fence(1),
            reach: self.runner.settings.reach.clone(),
            on_owner_lost: self.on_owner_lost(),
            attempts: 0,
            released: false,
            leg: if self.turn.waits() {
                Leg::Queued
            } else {
                Leg::Sent(1)
            },
            resume: None,
            questions: Vec::new(),
            round: 0,
            request_state: None,
            status_message: self.turn.message(),
            progress: None,
            outcome: None,
            must_tell: false,
        };
        task.resume = self.resume_point(&task);
        task
    }

    /// What may be done with the call should this replica be lost. Nobody else has the caller's
    /// credentials, and a session of the client's has what the call needs (a login, a browser): a call
    /// that needs one of them cannot be sent again.
    fn on_owner_lost(&self) -> OnOwnerLost {
        let can_repeat = self.call.outgoing.is_anybodys();
        match self.call.rule.on_owner_lost {
            OnOwnerLost::Fail => OnOwnerLost::Fail,
            OnOwnerLost::Rerun if can_repeat => OnOwnerLost::Rerun,
            OnOwnerLost::Resume if can_repeat && self.call.repeatable => OnOwnerLost::Rerun,
            OnOwnerLost::Resume | OnOwnerLost::Rerun => OnOwnerLost::Resume,
        }
    }

    /// Where another process could carry the call on, sealed.
    fn resume_point(&self, task: &Task) -> Option<Box<str>> {
        if task.on_owner_lost == OnOwnerLost::Fail {
            return None;
        }
        let point = self.exchange.as_ref()?.control.resume_point()?;
        self.runner.seal(task, &point)
    }

    /// The server's stream can be resumed: written down unless the call is over in a moment.
    pub(super) fn on_resumable(&mut self) -> Flow {
        let kept = self.kept.as_ref();
        let known = kept.is_none_or(|kept| kept.loaded.task.resume.is_some());
        self.resumable = (!known).then(|| Instant::now() + RESUMABLE_AFTER);
        Flow::Continue
    }

    pub(super) async fn commit_resume_point(&mut self) -> Flow {
        self.resumable = None;
        let Some(kept) = &self.kept else {
            return Flow::Continue;
        };
        let Some(point) = self.resume_point(&kept.loaded.task) else {
            return Flow::Continue;
        };
        match self.apply(OwnerEvent::Resumable(point)).await {
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            // Without it the call can only not be carried on by others.
            Ok(_) | Err(NotApplied::Gone | NotApplied::Store(_)) => Flow::Continue,
        }
    }

    /// Tells the client of what was kept: the task, or the question that parks the call.
    #[expect(
        clippy::unused_async,
        reason = "an end of a call may wait; this one has its place in the queue"
    )]
    pub(super) async fn announce(&mut self) {
        let Some(kept) = &self.kept else { return };
        let task = &kept.loaded.task;
        let json = if task.announced {
            let now_ms = self.runner.ledger.now_ms();
            self.call.announce.text(task, now_ms)
        } else {
            input_required(task)
        };
        if let (Some(seat), Ok(result)) = (&self.seat, RawValue::from_string(json)) {
            seat.answer(Answer::Result(result));
        }
    }

    /// The record changed, here or on another replica.
    pub(super) async fn on_change(&mut self) -> Flow {
        self.look_again = None;
        let Some(kept) = &self.kept else {
            return Flow::Continue;
        };
        match self.runner.ledger.load(kept.loaded.task.id).await {
            Ok(Some(loaded)) => self.see(loaded).await,
            Ok(None) => self.lost().await,
            // The mark is gone, the change is not.
            Err(_) => {
                self.look_again = Some(Instant::now() + LOOK_AGAIN);
                Flow::Continue
            }
        }
    }

    /// Does what the record asks of this carrier as it stands now.
    pub(super) async fn see(&mut self, loaded: Loaded) -> Flow {
        let Some(kept) = &mut self.kept else {
            return Flow::Continue;
        };
        kept.loaded = loaded;
        let task = &kept.loaded.task;
        if task.fence != kept.fence || task.released {
            return self.displaced().await;
        }
        if task.is_ended() {
            self.cancel_upstream().await;
            self.told().await;
            return Flow::Done;
        }
        self.deliver().await
    }

    /// Passes the client's answers on to the open call of a legacy server.
    pub(super) async fn deliver(&mut self) -> Flow {
        // A modern server's questions end its leg: their answers go with the next one.
        if self.call.era == Era::Modern && !self.follows {
            return Flow::Continue;
        }
        let (Some(kept), Some(exchange)) = (&self.kept, &self.exchange) else {
            return Flow::Continue;
        };
        let control = Arc::clone(&exchange.control);
        let answers: Vec<_> = kept
            .loaded
            .task
            .undelivered()
            .map(|(q, answer)| (q.key.clone(), q.origin.clone(), for_server(answer)))
            .collect();
        for (key, origin, answer) in answers {
            match control.answer(&origin, answer).await {
                Ok(()) => {}
                // Not sent: the call runs and waits for it, and the server may be back soon.
                Err(failure) if failure.effect == SideEffect::None => {
                    self.look_again = Some(Instant::now() + LOOK_AGAIN);
                    return Flow::Continue;
                }
                Err(failure) => return self.end_unanswered(failure).await,
            }
            hit(Point::Delivered);
            // A commit that fails is made up for by sending the same answer again: harmless. Who
            // is the owner no more hears of it by the change that made it so.
            let _ = self.apply(OwnerEvent::Delivered { key }).await;
        }
        Flow::Continue
    }

    pub(super) async fn commit_cancel(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let event = Event::Cancel {
            reason: Some(CancelReason::Disconnect),
        };
        match self.runner.ledger.apply(&kept.loaded, event).await {
            Ok((loaded, _)) => kept.loaded = loaded,
            Err(NotApplied::Rejected(_, stands)) => kept.loaded = *stands,
            // Found again through the owner's index.
            Err(NotApplied::Gone | NotApplied::Store(_)) => {}
        }
    }

    pub(super) async fn told(&mut self) {
        if self
            .kept
            .as_ref()
            .is_some_and(|kept| kept.loaded.task.must_tell)
        {
            let _ = self.apply(OwnerEvent::Told).await;
        }
    }

    pub(super) async fn commit_progress(&mut self) -> Flow {
        let Some((message, progress)) = self.progress.newest.take() else {
            return Flow::Continue;
        };
        let Some(kept) = &self.kept else {
            return Flow::Continue;
        };
        let now = Instant::now();
        if let Err(again) = self.runner.progress.take(now) {
            self.progress.newest = Some((message, progress));
            self.progress.not_before = Some(again);
            return Flow::Continue;
        }
        let pause = Duration::from_millis(kept.loaded.task.poll_interval_ms);
        self.progress.not_before = Some(now + pause);
        let resume = self.resume_point(&kept.loaded.task);
        let event = OwnerEvent::Progressed {
            message,
            progress,
            resume,
        };
        let event = Event::Owner(kept.fence, event);
        // Progress may be lost: newer progress follows.
        match self.runner.ledger.try_apply(&kept.loaded, event).await {
            Ok(Tried::Done(loaded, _) | Tried::Conflict(loaded)) => self.see(*loaded).await,
            Err(_) => Flow::Continue,
        }
    }

    pub(super) async fn apply(&mut self, event: OwnerEvent) -> Result<Option<Effect>, NotApplied> {
        let Some(kept) = &mut self.kept else {
            return Err(NotApplied::Gone);
        };
        let event = Event::Owner(kept.fence, event);
        let (loaded, effect) = self.runner.ledger.apply(&kept.loaded, event).await?;
        // What the owner itself changed is what it carries from here on.
        kept.leg = loaded.task.leg;
        kept.loaded = loaded;
        Ok(effect)
    }
}

fn for_server(answer: &RawValue) -> upstream::Answer {
    match input::refused(answer) {
        Some(error) => upstream::Answer::Refused(error.get().into()),
        None => upstream::Answer::Result(answer.get().into()),
    }
}
