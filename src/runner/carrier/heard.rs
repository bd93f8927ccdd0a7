//! What the wrapped server says, and what becomes of the call.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::super::outcome::{self, Meaning};
use super::super::seat::{Answer, Seat};
use super::begun::not_created;
use super::{Carrier, Flow, GATHER};
use crate::failpoint::{Point, hit};
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::{Object, set};
use crate::mcp::version::Era;
use crate::mcp::{input, result};
use crate::store::ledger::NotApplied;
use crate::task::machine::{OwnerEvent, Rejected};
use crate::task::policy::{InputWhen, Plan};
use crate::task::state::Progress;
use crate::upstream;

impl Carrier {
    pub(super) async fn on_upstream(&mut self, event: upstream::Event) -> Flow {
        match event {
            upstream::Event::Sent => self.on_sent(),
            upstream::Event::Progress(params) => {
                hit(Point::EventProgress);
                self.on_progress(&params).await
            }
            upstream::Event::Log(params) => {
                hit(Point::EventLog);
                if self.kept.is_none() {
                    self.relay("notifications/message", params.get()).await;
                }
                Flow::Continue
            }
            upstream::Event::Question(question) => {
                hit(Point::EventQuestion);
                self.on_question(question).await
            }
            upstream::Event::Result(result) => {
                hit(Point::EventResult);
                self.on_result(result).await
            }
            upstream::Event::Error(mut error) => {
                hit(Point::EventError);
                let asked = &self.call.outgoing;
                if self.call.era == Era::Legacy && &*asked.method == "resources/read" {
                    let uri = asked.name.as_deref().unwrap_or_default();
                    error.error = result::resource_error(error.error, uri);
                }
                if outcome::is_unauthorized(&error)
                    && let Some(first) = self.first.take()
                {
                    let _ = first.send(error.clone());
                }
                let answer = Answer::Error(error.clone());
                let effect = self.effect_of(SideEffect::None);
                self.on_end(outcome::of_error(error, effect), answer).await
            }
            upstream::Event::Resumable => self.on_resumable(),
            upstream::Event::Later(pause) => self.on_later(pause),
            upstream::Event::Failed(failure) => {
                hit(Point::EventFailed);
                if failure.reason == Reason::UpstreamReset
                    && let Some(flow) = self.repeat().await
                {
                    return flow;
                }
                let failure = Failure::new(failure.reason, self.effect_of(failure.effect));
                self.on_end(outcome::failed(failure), Answer::Failed(failure))
                    .await
            }
        }
    }

    /// What the call did whose leg did so much: an earlier leg, or another run, did more.
    fn effect_of(&self, leg: SideEffect) -> SideEffect {
        let was_sent_before = self.kept.as_ref().is_some_and(|kept| {
            let task = &kept.loaded.task;
            self.adopted || task.round > 0 || task.attempts > 0
        });
        if was_sent_before {
            SideEffect::Unknown
        } else {
            leg
        }
    }

    pub(super) async fn on_progress(&mut self, params: &RawValue) -> Flow {
        if self.kept.is_some() {
            if let Some(read) = read_progress(params) {
                self.progress.newest = Some(read);
            }
        } else if let Some(token) = self.call.progress_token.clone() {
            // The server echoes raincheck's token; the client knows its own.
            if let Ok(params) = set(params.get(), "progressToken", token.get()) {
                self.relay("notifications/progress", &params).await;
            }
        }
        Flow::Continue
    }

    /// The server is busy, or is so no more: said in the task, as soon as there is one.
    fn on_later(&mut self, pause: Option<Duration>) -> Flow {
        let message = match pause {
            Some(pause) => Some(format!(
                "The server is busy; it is asked again in {} s",
                pause.as_secs().max(1)
            )),
            None => self
                .kept
                .is_some()
                .then(|| "The server has taken the call".to_owned()),
        };
        self.progress.newest = message.map(|message| (Some(message.into()), None));
        Flow::Continue
    }

    pub(super) async fn relay(&mut self, method: &str, params: &str) {
        if let Some(seat) = &self.seat {
            let told = envelope::notification(method, params);
            seat.tell(told, self.window).await;
        }
    }

    /// A legacy server asks in the middle of its call.
    pub(super) async fn on_question(&mut self, question: upstream::Question) -> Flow {
        if self.kept.is_some() {
            return self.ask(question).await;
        }
        if self.asked.len() >= input::QUESTIONS_MAX {
            self.refuse(&question).await;
            return Flow::Continue;
        }
        if self.call.face == Era::Legacy {
            self.relay_question(question).await;
            return Flow::Continue;
        }
        self.asked.push(question);
        self.gather.get_or_insert_with(|| Instant::now() + GATHER);
        Flow::Continue
    }

    /// The first questions came before there was a record: it is made now, as a task that the
    /// client hears of, or parked until the client comes back with the answers.
    pub(super) async fn on_gathered(&mut self) -> Flow {
        self.gather = None;
        let announced = self.asks_in_task();
        let events = self.events_of_asked().await;
        self.asked.clear();
        if events.is_empty() {
            // All were refused: the server goes on as it likes.
            return Flow::Continue;
        }
        if let Err(why) = self.keep(events, announced).await {
            self.cancel_upstream().await;
            let answer = not_created(&why, SideEffect::Unknown);
            self.answer(answer).await;
            return Flow::Done;
        }
        self.announce().await;
        Flow::Continue
    }

    /// The questions so far, for a record; those that cannot be kept are refused.
    pub(super) async fn events_of_asked(&mut self) -> Vec<OwnerEvent> {
        let asked = std::mem::take(&mut self.asked);
        let mut events = Vec::with_capacity(asked.len());
        for question in asked {
            match input::request_of_legacy(&question.method, question.params.as_deref()) {
                Ok(request) => {
                    events.push(OwnerEvent::Asked {
                        origin: (&*question.id).into(),
                        request,
                    });
                    self.asked.push(question);
                }
                Err(_) => self.refuse(&question).await,
            }
        }
        events
    }

    /// Whether a question that comes before there is a record belongs in a task.
    fn asks_in_task(&self) -> bool {
        matches!(
            self.call.plan,
            Plan::Auto {
                input: InputWhen::InTask,
                ..
            }
        )
    }

    pub(super) async fn ask(&mut self, question: upstream::Question) -> Flow {
        let request = input::request_of_legacy(&question.method, question.params.as_deref());
        let Ok(request) = request else {
            self.refuse(&question).await;
            return Flow::Continue;
        };
        let asked = OwnerEvent::Asked {
            origin: (&*question.id).into(),
            request,
        };
        match self.apply(asked).await {
            Ok(_) => Flow::Continue,
            // A resumed stream told it again; or somebody else carries the call now.
            Err(NotApplied::Rejected(Rejected::Unchanged | Rejected::NotOwner, stands)) => {
                self.see(*stands).await
            }
            Err(NotApplied::Rejected(_, stands)) => {
                self.refuse(&question).await;
                self.see(*stands).await
            }
            Err(NotApplied::Gone) => self.lost().await,
            Err(NotApplied::Store(_)) => {
                self.refuse(&question).await;
                Flow::Continue
            }
        }
    }

    pub(super) async fn refuse(&mut self, question: &upstream::Question) {
        if let Some(exchange) = &self.exchange {
            let error = RpcError::internal("This question cannot be put to the client");
            let answer = upstream::Answer::Refused(error.to_json().into());
            let _ = exchange.control.answer(&question.id, answer).await;
        }
    }

    pub(super) async fn on_result(&mut self, mut result: Box<RawValue>) -> Flow {
        // What passes to a legacy client keeps its bytes.
        if self.call.era == Era::Legacy && (self.kept.is_some() || self.call.face == Era::Modern) {
            result = result::without_type(result);
        }
        let era = self.call.era;
        let asks = |result: &RawValue| {
            // A legacy result is always complete, whatever it contains.
            let kind = result::result_type(result);
            era == Era::Modern && kind == Ok(result::ResultType::InputRequired)
        };
        if self.kept.is_none() && self.asks_in_task() && asks(&result) {
            // The question belongs in a task: it is announced together with what is asked.
            return self.on_asks_first(result).await;
        }
        let is_large = self.would_be_large_event(&result) && !asks(&result);
        if is_large && self.keep(Vec::new(), true).await.is_ok() {
            self.announce().await;
        }
        if self.kept.is_none() {
            let answer = self.fit(result).map_or_else(
                || Answer::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown)),
                Answer::Result,
            );
            self.answer(answer).await;
            return Flow::Done;
        }
        // The server made a task of its own of what is one of ours already.
        if self.call.era == Era::Modern
            && self.call.outgoing.native_task
            && let Some(followed) = self.runner.upstream.follow(&self.call.outgoing, &result)
        {
            self.exchange = Some(followed);
            self.follows = true;
            return Flow::Continue;
        }
        let invalid = Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown);
        self.on_end(outcome::of_result(result), Answer::Failed(invalid))
            .await
    }

    /// The result would be a large event for a client that can hear of a task instead.
    fn would_be_large_event(&self, result: &RawValue) -> bool {
        let streams = self.seat.as_ref().is_some_and(Seat::streams);
        let may_be_task = self.kept.is_none() && self.window.is_some();
        may_be_task && streams && self.call.announce.is_better_than(result)
    }

    /// A plain result as the client's era wants it.
    pub(super) fn fit(&self, result: Box<RawValue>) -> Option<Box<RawValue>> {
        match (self.call.era, self.call.face) {
            (Era::Modern, _) | (Era::Legacy, Era::Legacy) => Some(result),
            (Era::Legacy, Era::Modern) => {
                let caller = self.call.outgoing.caller;
                let known = self.runner.upstream.last_discovered(caller);
                let info = known.as_ref().and_then(|d| d.server_info.as_deref());
                result::from_legacy(&self.call.outgoing.method, result, info).ok()
            }
        }
    }

    /// The call was answered with questions before this carrier.
    pub(in crate::runner) async fn ask_in_task(mut self, asked: Box<RawValue>) {
        let mut flow = self.on_asks_first(asked).await;
        while let Flow::Continue = flow {
            flow = self.turn().await;
        }
    }

    pub(super) async fn on_asks_first(&mut self, result: Box<RawValue>) -> Flow {
        let Ok(asked) = input::requests_of(&result) else {
            self.answer(Answer::Failed(Failure::new(
                Reason::UpstreamInvalid,
                SideEffect::Unknown,
            )))
            .await;
            return Flow::Done;
        };
        let dispatch = asked.requests.is_empty();
        let event = OwnerEvent::RoundAsked {
            requests: asked.requests,
            request_state: asked.request_state,
        };
        if self.keep(vec![event], true).await.is_err() {
            // The client can answer the question itself: nothing is in flight.
            self.answer(Answer::Result(result)).await;
            return Flow::Done;
        }
        self.announce().await;
        if dispatch {
            self.next_leg_later()
        } else {
            self.wait_for_settlement().await
        }
    }

    /// The call has come to its end at the server.
    pub(super) async fn on_end(&mut self, meaning: Meaning, answer: Answer) -> Flow {
        if self.kept.is_none() {
            self.answer(answer).await;
            return Flow::Done;
        }
        self.exchange = None;
        let end = match meaning {
            // It may go on at once, in the place that it has.
            Meaning::Asks(asked) => return self.on_round(asked).await,
            Meaning::Completed(result) => {
                let bytes_max = self.call.rule.result_bytes_max;
                if result.get().len() as u64 > bytes_max {
                    let failure = Failure::new(Reason::UpstreamTooLarge, SideEffect::Unknown);
                    Err(failure.to_error().to_raw())
                } else {
                    Ok(result)
                }
            }
            Meaning::Failed(error) => Err(error),
        };
        self.end_turn();
        if let Some(kept) = &self.kept {
            let heard = self.progress.newest.take();
            let progress = heard.and_then(|(_, progress)| progress);
            self.runner
                .finish(&kept.loaded, kept.fence, end, progress)
                .await;
        }
        self.wait_for_settlement().await
    }
}

/// Digits of a number of progress; a longer one is as good as none.
const DIGITS_MAX: usize = 64;

/// What a poller may see of a progress notification. A number that no record can hold (1e999, or four
/// hundred digits) is none.
fn read_progress(params: &RawValue) -> Option<(Option<Box<str>>, Option<Progress>)> {
    let object = Object::parse(params.get()).ok()?;
    let number = |key| {
        let text = object.get(key)?.get();
        let number: f64 = text.parse().ok()?;
        (text.len() <= DIGITS_MAX && number.is_finite()).then_some(number)
    };
    let progress = Progress {
        progress: number("progress")?,
        total: number("total"),
    };
    let message = object.get_str("message").map_or_else(
        || match progress.total {
            Some(total) => format!("{} of {total}", progress.progress).into(),
            None => format!("progress {}", progress.progress).into(),
        },
        |text| Box::from(&*text),
    );
    Some((Some(message), Some(progress)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &str) -> Option<Progress> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        read_progress(&params)?.1
    }

    #[test]
    fn only_numbers_that_a_record_can_hold_are_progress() {
        let known = read(r#"{"progress":1.5,"total":3}"#).unwrap();
        assert_eq!((known.progress, known.total), (1.5, Some(3.0)));
        let long = "9".repeat(400);
        for none in ["1e999", "-1e999", "\"1\"", "null", &long] {
            assert_eq!(read(&format!(r#"{{"progress":{none}}}"#)), None, "{none}");
            let known = read(&format!(r#"{{"progress":1,"total":{none}}}"#)).unwrap();
            assert_eq!(known.total, None, "{none}");
        }
    }
}
