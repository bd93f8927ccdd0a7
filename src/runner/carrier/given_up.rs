//! A call whose client gave up before it had its answer.

use std::mem;
use std::sync::Arc;

use super::super::call_claim::{CallClaim, Sharing};
use super::super::given_up_claims::ClaimInWriting;
use super::super::report::tool_of;
use super::super::waiting::still_running;
use super::{Audience, CallStage, Carrier, Flow, RecordTerms};
use crate::mcp::json::Object;
use crate::mcp::tools::Repeats;
use crate::runner::leg::digest;
use crate::task::clocks::RungClock;
use crate::task::id::TaskId;

impl Carrier {
    /// Returns the claim by which the same call collects this one, if its client's clock ended, and the clock, if it shows after
    /// how long the client gives up. `None`: the client cancelled the call, or no other request can be recognised as the same.
    pub(super) fn given_up(&self) -> Option<(CallClaim, Option<RungClock>)> {
        let client = self.audience.client().filter(|client| client.gave_up())?;
        let claim = self.claim_to_collect()?;
        let clock = match (&self.stage, tool_of(&self.server.outgoing)) {
            (CallStage::Plain(plain), Some(tool)) => plain.origin.client.clock_of(tool),
            (CallStage::Plain(_), None) | (CallStage::Recorded(_), _) => None,
        };
        Some((claim, client.rung_clock(clock)))
    }

    /// Keeps the call of a client whose clock is about to end, and answers the client. If the call cannot be kept, the client
    /// waits on.
    pub(super) async fn on_clients_clock(&mut self) -> Flow {
        let Some(claim) = self.claim_to_collect() else {
            return Flow::Continue;
        };
        let audience = mem::replace(&mut self.audience, Audience::RecordReaders);
        // No clock rang: what is known of it must not be confirmed by its own effect.
        let tool = tool_of(&self.server.outgoing).unwrap_or_default();
        let writing = self.runner.begin_to_keep(&claim, tool, None);
        let is_kept = self.is_kept(&claim).await;
        drop(writing);
        let (Audience::Client(client), true) = (&audience, is_kept) else {
            self.audience = audience;
            return Flow::Continue;
        };
        if let Some(recorded) = self.stage.recorded() {
            let task = recorded.task();
            client.answer(Some(&task.name), still_running(task));
        }
        // The client may have cancelled the call while it was written.
        if client.responder.is_gone() && !client.gave_up() {
            return self.on_stopped().await;
        }
        self.on_recorded().await
    }

    /// Makes a record of the call, for the same call, which came again, to join. The client waits on, as one that follows the
    /// record.
    pub(super) async fn on_sent_again(&mut self) -> Flow {
        let Audience::Client(client) = &self.audience else {
            return Flow::Continue;
        };
        // They look for the claim as soon as these are dropped.
        let sent_again = client.responder.note().take_sent_again();
        let sharing = sent_again.first().map(|again| Sharing {
            keeps_result: again.repeats == Repeats::ReadOnly,
        });
        // The client's answer to an open question would find no carrier.
        let asks = match &self.stage {
            CallStage::Plain(plain) => !plain.asked.is_empty() || plain.round.is_some(),
            CallStage::Recorded(_) => true,
        };
        let claim = self.claim_to_collect().filter(|_| !asks);
        let Some(claim) = claim.and_then(|claim| claim.shared(sharing?)) else {
            return Flow::Continue;
        };
        let audience = mem::replace(&mut self.audience, Audience::RecordReaders);
        if !self.is_recorded_under(&claim).await {
            self.audience = audience;
            return Flow::Continue;
        }
        if let (Audience::Client(client), Some(recorded)) = (audience, self.stage.recorded()) {
            let loaded = recorded.loaded.clone();
            self.runner.follow_shared(loaded, *client, claim);
        }
        self.on_recorded().await
    }

    /// Returns the claim by which the same call collects this one. `None`: no other request can be recognised as the same.
    fn claim_to_collect(&self) -> Option<CallClaim> {
        let CallStage::Plain(plain) = &self.stage else {
            return None;
        };
        let tool = tool_of(&self.server.outgoing)?;
        let whose = plain.origin.client.gives_up_as?;
        let window_ms = self.server.rule.give_up_window_ms?;
        // Without the store the call is cancelled at once, as any other.
        if !*self.runner.store_answers.borrow() {
            return None;
        }
        if plain.origin.collected_by.is_some() {
            return plain.origin.collected_by;
        }
        let params = Object::parse(&self.server.outgoing.params).unwrap_or_default();
        // A request that brings answers is another call than the one that asked.
        if params.contains("requestState") || params.contains("inputResponses") {
            return None;
        }
        // A tool that usually takes longer than the window would be cancelled before the same call could collect its
        // result.
        let usual_ms = self.runner.learned.tool(tool).map_or(0, |tool| tool.p90_ms);
        let digest = digest(&self.server.outgoing);
        Some(CallClaim::of_given_up(
            &whose,
            digest,
            window_ms.max(usual_ms),
        ))
    }

    /// Keeps the call for the same call to collect it. If the store does not take it, the call is cancelled.
    pub(super) async fn keep(&mut self, claim: &CallClaim, writing: ClaimInWriting) -> Flow {
        // Nobody reads what the client would have got.
        self.audience = Audience::RecordReaders;
        let is_kept = self.is_kept(claim).await;
        // Released before a cancel, which may wait for the server: the same call begins anew without that wait.
        drop(writing);
        if is_kept {
            self.on_recorded().await
        } else {
            self.on_stopped().await
        }
    }

    /// Makes a record of the call, and its claim, and lets the call run on without a client. Returns `true` if the same call can
    /// collect it. If not, there is no record.
    async fn is_kept(&mut self, claim: &CallClaim) -> bool {
        let is_kept = self.is_recorded_under(claim).await;
        if let Some(recorded) = self.stage.recorded().filter(|_| is_kept) {
            self.runner.runs_on(recorded.task());
        }
        is_kept
    }

    /// Makes a record of the call, and its claim. Returns `true` if the same call can collect it. If not, there is no record.
    async fn is_recorded_under(&mut self, claim: &CallClaim) -> bool {
        let runner = Arc::clone(&self.runner);
        self.forget_passed().await;
        let id = TaskId::random();
        // The claim comes first: a call with a record and without a claim would have no client any more.
        let on_disconnect = claim.on_disconnect();
        if runner.write_claim(claim, id, on_disconnect).await.is_err() {
            return false;
        }
        let events = self.record_questions().await;
        let terms = RecordTerms {
            id,
            ttl_ms: 0,
            on_disconnect,
            announced: false,
        };
        if self.record(events, terms).await.is_err() {
            runner.withdraw(claim).await;
            return false;
        }
        true
    }
}
