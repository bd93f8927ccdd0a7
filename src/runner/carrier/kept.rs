//! The record of a call: made, announced, followed, changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::outcome;
use super::super::seat::{Answer, Reply};
use super::super::{leg, parked};
use super::{Carrier, Flow, Kept};
use crate::mcp::error::Reason;
use crate::mcp::version::Era;
use crate::store::StoreError;
use crate::store::ledger::{NotApplied, Tried};
use crate::task::id::{Fence, TaskId};
use crate::task::machine::{Effect, Event, OwnerEvent, Step, step};
use crate::task::state::{Leg, Task};
use crate::task::view;
use crate::upstream;

impl Carrier {
    /// Makes the record of this call, with what has happened to it already.
    pub(super) async fn keep(
        &mut self,
        events: Vec<OwnerEvent>,
        announced: bool,
    ) -> Result<(), StoreError> {
        let runner = Arc::clone(&self.runner);
        let mut task = self.new_task(announced);
        for event in events {
            let decided = step(&task, Event::Owner(task.fence, event), task.created_ms);
            task = decided.map_or(task, |Step { task, .. }| task);
        }
        // Only a modern server asks for the request again, with the answers in it.
        let request = match self.call.era {
            Era::Modern => Some(leg::store(&self.call.outgoing)?),
            Era::Legacy => None,
        };
        let id = task.id;
        // Watched before it exists: no change is missed.
        let watch = runner.watches.watch(vec![id]);
        let loaded = match runner.ledger.create(task, request).await {
            Ok(loaded) => loaded,
            Err(why) => {
                runner.doubt(id);
                return Err(why);
            }
        };
        let _ = self.carried.set(id);
        self.window = None;
        self.deadline = Instant::now() + Duration::from_millis(self.call.rule.max_duration_ms);
        self.kept = Some(Kept { loaded, watch });
        Ok(())
    }

    pub(super) fn new_task(&self, announced: bool) -> Task {
        let (rule, now_ms) = (&self.call.rule, self.runner.ledger.now_ms());
        Task {
            id: TaskId::random(),
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
            ttl_ms: rule.ttl_ms(),
            poll_interval_ms: rule.poll_interval_ms,
            input_timeout_ms: rule.input_timeout_ms,
            announced,
            digest: (!announced).then_some(self.call.digest),
            owner: Some(self.runner.incarnation.clone()),
            fence: Fence(1),
            leg: Leg::Sent(1),
            questions: Vec::new(),
            round: 0,
            request_state: None,
            status_message: None,
            progress: None,
            outcome: None,
            must_tell: false,
        }
    }

    /// Tells the client of what was kept: the task, or the question that parks the call.
    pub(super) async fn announce(&mut self) {
        let Some(kept) = &self.kept else { return };
        let task = &kept.loaded.task;
        let json = if task.announced {
            view::create_result(task, self.runner.ledger.now_ms())
        } else {
            parked::input_required(task)
        };
        if let (Some(seat), Ok(result)) = (&self.seat, RawValue::from_string(json)) {
            seat.send(Reply::Answer(Answer::Result(result)), self.deadline)
                .await;
        }
    }

    /// The record changed, here or on another replica.
    pub(super) async fn on_change(&mut self) -> Flow {
        let Some(kept) = &mut self.kept else {
            return Flow::Continue;
        };
        match self.runner.ledger.load(kept.loaded.task.id).await {
            Ok(Some(loaded)) => kept.loaded = loaded,
            Ok(None) => return self.lost().await,
            // Marked again when the store is back and something changes; the deadline stands.
            Err(_) => return Flow::Continue,
        }
        if kept.loaded.task.is_ended() {
            self.cancel_upstream().await;
            self.told().await;
            return Flow::Done;
        }
        self.deliver().await
    }

    /// Passes the client's answers on to the open call of a legacy server.
    pub(super) async fn deliver(&mut self) -> Flow {
        if self.call.era == Era::Modern {
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
            .map(|(q, answer)| (q.key.clone(), q.origin.clone(), Arc::from(answer.get())))
            .collect();
        for (key, origin, answer) in answers {
            if let Err(failure) = control
                .answer(&origin, upstream::Answer::Result(answer))
                .await
            {
                return self
                    .on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await;
            }
            // A commit that fails is made up for by sending the same answer again: harmless.
            let _ = self.apply(OwnerEvent::Delivered { key }).await;
        }
        Flow::Continue
    }

    pub(super) async fn commit_cancel(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let event = Event::Cancel {
            reason: Some(Reason::CancelledByDisconnect),
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
        self.progress.committed = Some(Instant::now());
        let Some(kept) = &mut self.kept else {
            return Flow::Continue;
        };
        let event = OwnerEvent::Progressed { message, progress };
        let event = Event::Owner(kept.loaded.task.fence, event);
        // Progress may be lost: newer progress follows.
        match self.runner.ledger.try_apply(&kept.loaded, event).await {
            Ok(Tried::Done(loaded, _) | Tried::Conflict(loaded)) => kept.loaded = *loaded,
            Err(_) => {}
        }
        Flow::Continue
    }

    pub(super) async fn apply(&mut self, event: OwnerEvent) -> Result<Option<Effect>, NotApplied> {
        let Some(kept) = &mut self.kept else {
            return Err(NotApplied::Gone);
        };
        let event = Event::Owner(kept.loaded.task.fence, event);
        let (loaded, effect) = self.runner.ledger.apply(&kept.loaded, event).await?;
        kept.loaded = loaded;
        Ok(effect)
    }
}
