//! The handling of a call whose leg has ended at the server.

use serde_json::value::RawValue;

use super::super::outcome::{self, LegOutcome};
use super::super::responder::CallAnswer;
use super::{CallStage, Carrier, Flow, RecordTerms, Timer};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::mcp::{input, result};
use crate::task::machine::OwnerEvent;

impl Carrier {
    pub(super) async fn on_result(&mut self, mut result: Box<RawValue>) -> Flow {
        // A result for a legacy client keeps its bytes.
        let client_era = match (&self.stage, self.audience.client()) {
            (CallStage::Plain(_), Some(client)) => client.terms.era,
            (CallStage::Plain(_), None) | (CallStage::Recorded(_), _) => Era::Modern,
        };
        let is_for_modern = client_era == Era::Modern;
        if self.server.era == Era::Legacy && is_for_modern {
            result = result::without_type(result);
        }
        // A legacy result is always complete, whatever it contains.
        let is_modern = self.server.era == Era::Modern;
        let asks = |result: &RawValue| {
            is_modern && result::result_type(result) == Ok(result::ResultType::InputRequired)
        };
        let is_plain = !self.stage.is_recorded();
        if is_plain && self.asks_in_task() && asks(&result) {
            // The question belongs in a task: both are announced together.
            return self.on_asks_first(result).await;
        }
        // A legacy client knows no such result: it is asked while it waits.
        if is_plain && client_era == Era::Legacy && asks(&result) {
            return self.on_client_round(&result).await;
        }
        if is_plain && let Some(excerpt) = Box::pin(self.excerpt(&result, client_era)).await {
            result = excerpt;
        }
        if self.would_be_large_event(&result) && !asks(&result) {
            // If there is no record, the client gets the large event.
            let _ = self.record(Vec::new(), RecordTerms::of_call(true)).await;
        }
        if !self.stage.is_recorded() {
            let sent = (self.server.era, &*self.server.outgoing);
            let fit = self.runner.fit_sent(sent, client_era, result);
            self.answer(fit.map_or_else(invalid, CallAnswer::result));
            return Flow::Done;
        }
        // The server made its own task of a call that is already a raincheck task.
        if is_modern
            && self.server.outgoing.native_task
            && let Some(followed) = self.runner.upstream.follow(&self.server.outgoing, &result)
        {
            self.dispatch.follow(followed);
            return Flow::Continue;
        }
        self.on_end(outcome::of_result(result), invalid()).await
    }

    /// Returns `true` if the result would be a large event for a client that can be notified of a task instead.
    fn would_be_large_event(&self, result: &RawValue) -> bool {
        let may_be_task = self.timers.at(Timer::GraceWindow).is_some();
        let client = self.audience.client().filter(|_| !self.stage.is_recorded());
        may_be_task && client.is_some_and(|client| client.prefers_task_to(result))
    }

    /// A modern server answered a call without a record with questions that belong in a task.
    pub(super) async fn on_asks_first(&mut self, result: Box<RawValue>) -> Flow {
        let Ok(asked) = input::requests_of(&result) else {
            self.answer(invalid());
            return Flow::Done;
        };
        let has_no_question = asked.requests.is_empty();
        let event = OwnerEvent::RoundAsked {
            requests: asked.requests,
            request_state: asked.request_state,
        };
        let recorded = self.record(vec![event], RecordTerms::of_call(true)).await;
        if recorded.is_err() {
            // The client can answer the question itself: nothing is in flight.
            self.answer(CallAnswer::result(result));
            return Flow::Done;
        }
        if has_no_question {
            self.next_leg_later()
        } else {
            self.wait_for_settlement().await
        }
    }

    /// The leg has ended at the server. `plain` is the answer of a call without a record.
    pub(super) async fn on_end(&mut self, outcome: LegOutcome, plain: CallAnswer) -> Flow {
        if !self.stage.is_recorded() {
            self.answer(plain);
            return Flow::Done;
        }
        let end = match outcome {
            // The next leg may go out at once, with the permits of this one.
            LegOutcome::Asks(asked) => {
                self.dispatch.end_leg();
                return self.on_round(asked).await;
            }
            LegOutcome::Completed(result) => {
                let bytes_max = self.server.rule.result_bytes_max;
                if result.get().len() as u64 > bytes_max {
                    // The tool has run, although its result is dropped.
                    let failure = Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown);
                    Err(failure.to_error().to_raw())
                } else {
                    Ok(result)
                }
            }
            LegOutcome::Failed(error) => Err(error),
        };
        // The server is done with the call, so its permits do not wait for the store.
        self.end_dispatch();
        let last = self.take_last_news();
        if let CallStage::Recorded(recorded) = &self.stage {
            self.runner
                .finish(&recorded.loaded, recorded.fence, end, last)
                .await;
        }
        self.wait_for_settlement().await
    }
}

/// The answer of a call whose result raincheck cannot read.
pub(super) fn invalid() -> CallAnswer {
    CallAnswer::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown))
}
