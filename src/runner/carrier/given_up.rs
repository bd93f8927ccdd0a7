//! A call whose client gave up before it had its answer.

use std::sync::Arc;

use super::super::call_claim::CallClaim;
use super::super::given_up_claims::ClaimInWriting;
use super::super::report::tool_of;
use super::record::digest;
use super::{Audience, CallStage, Carrier, Flow, RecordTerms};
use crate::mcp::json::Object;
use crate::task::id::TaskId;

impl Carrier {
    /// Returns the claim by which the same call collects this one, if its client's clock ended. `None`: the client
    /// cancelled the call, or nobody can collect it.
    pub(super) fn given_up_claim(&self) -> Option<CallClaim> {
        let (CallStage::Plain(plain), Audience::Client(client)) = (&self.stage, &self.audience)
        else {
            return None;
        };
        let tool = tool_of(&self.server.outgoing)?;
        let whose = plain.origin.client.gives_up_as?;
        let window_ms = self.server.rule.give_up_window_ms?;
        // Without the store the call is cancelled at once, as any other.
        if !client.gave_up() || !*self.runner.store_answers.borrow() {
            return None;
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

    /// Makes a record of the call, for the same call to collect. If the store does not take it, the call is cancelled.
    pub(super) async fn keep(&mut self, claim: &CallClaim, writing: ClaimInWriting) -> Flow {
        // Nobody reads what the client would have got.
        self.audience = Audience::RecordReaders;
        let runner = Arc::clone(&self.runner);
        self.forget_passed().await;
        let events = self.record_questions().await;
        let terms = RecordTerms {
            id: TaskId::random(),
            ttl_ms: 0,
            on_disconnect: claim.on_disconnect(),
            announced: false,
        };
        if self.record(events, terms).await.is_err() {
            // Released before the cancel, which may wait for the server: the same call begins anew without that wait.
            drop(writing);
            return self.on_stopped().await;
        }
        let kept = match self.stage.recorded() {
            Some(recorded) => runner.keep_given_up(claim, recorded.task()).await.is_ok(),
            None => false,
        };
        drop(writing);
        if kept {
            self.on_recorded().await
        } else {
            self.on_stopped().await
        }
    }
}
