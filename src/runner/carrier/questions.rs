//! Questions of a legacy server in the middle of its call.
//!
//! Before there is a record, a question is relayed to a legacy client as it is, or it makes the record: as a
//! task, or parked until the client comes back with the answer. When there is a record, it stores the
//! questions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use super::super::responder::RelayedAnswer;
use super::stage::asked;
use super::{CallStage, Carrier, Flow, RecordTerms, Timer, not_created};
use crate::mcp::envelope;
use crate::mcp::error::{RpcError, SideEffect};
use crate::mcp::input;
use crate::mcp::json::{Object, Writer, quote};
use crate::mcp::tasks_2025;
use crate::mcp::version::Era;
use crate::store::ledger::ApplyError;
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::{OwnerEvent, Rejected};
use crate::upstream::{self, Question};

/// The wait for more questions after the first: a client that is asked for all of them together
/// answers in one go.
const GATHER: Duration = Duration::from_millis(50);

impl Carrier {
    pub(super) async fn on_question(&mut self, question: Question) -> Flow {
        let CallStage::Plain(plain) = &mut self.stage else {
            return self.ask(question).await;
        };
        // These questions may have to go into a record, so the bound is the record's.
        if plain.asked.len() >= input::QUESTIONS_MAX {
            self.refuse(&question).await;
            return Flow::Continue;
        }
        let client = self.audience.client();
        if let Some(client) = client.filter(|client| client.terms.era == Era::Legacy) {
            let params = question.params.as_deref().map(RawValue::get);
            let request = envelope::request(&question.id, &question.method, params);
            let deadline = self.timers.deadline();
            client.responder.ask(request, deadline).await;
        } else if self.timers.at(Timer::Gather).is_none() {
            // Only the first question arms the timer: later ones must not put it off.
            self.timers.arm(Timer::Gather, Instant::now() + GATHER);
        }
        // The question is kept until it is answered, because a record would have to store it.
        plain.asked.push(question);
        Flow::Continue
    }

    /// Makes the record for questions that came before there was a record: as a task that the client is notified of,
    /// or parked until the client comes back with the answers.
    pub(super) async fn on_gathered(&mut self) -> Flow {
        if self.stage.is_recorded() {
            return Flow::Continue;
        }
        let announced = self.asks_in_task();
        let events = self.record_questions().await;
        if events.is_empty() {
            // All questions were refused, and the server decides how its call goes on.
            return Flow::Continue;
        }
        let terms = RecordTerms::of_call(announced);
        if let Err(why) = self.record(events, terms).await {
            // The server waits for an answer that can no longer come, so its call must not stay open.
            self.cancel_upstream().await;
            self.answer(not_created(&why, SideEffect::Unknown));
            return Flow::Done;
        }
        Flow::Continue
    }

    /// The open questions as events for a record. Refuses those that no record can hold.
    pub(super) async fn record_questions(&mut self) -> Vec<OwnerEvent> {
        let CallStage::Plain(plain) = &mut self.stage else {
            return Vec::new();
        };
        let (events, refused) = plain.record_questions();
        for question in refused {
            self.refuse(&question).await;
        }
        events
    }

    /// Puts a question into the record.
    async fn ask(&mut self, question: Question) -> Flow {
        let Some(event) = asked(&question) else {
            self.refuse(&question).await;
            return Flow::Continue;
        };
        match self.apply(event).await {
            Ok(_) => Flow::Continue,
            // A resumed stream repeated the question, or another replica carries the call now.
            Err(ApplyError::Rejected(Rejected::Unchanged | Rejected::NotOwner, latest)) => {
                self.act_on(*latest).await
            }
            Err(ApplyError::Rejected(_, latest)) => {
                self.refuse(&question).await;
                self.act_on(*latest).await
            }
            Err(ApplyError::Gone) => self.on_record_gone().await,
            Err(ApplyError::Store(error)) => {
                warn!(%error, "a question of the server was refused, because the store did not take it");
                self.refuse(&question).await;
                Flow::Continue
            }
        }
    }

    async fn refuse(&mut self, question: &Question) {
        if let Some(exchange) = self.dispatch.exchange() {
            let control = Arc::clone(&exchange.control);
            let error = RpcError::internal("This question cannot be put to the client");
            let answer = upstream::Answer::Refused(error.to_json().into());
            // If the refusal does not arrive, the call still ends at its deadline.
            let _ = control.answer(&question.id, answer).await;
        }
    }

    /// Forgets the questions whose answers came to another replica, which passed them to the server.
    pub(super) async fn forget_passed(&mut self) {
        let CallStage::Plain(plain) = &mut self.stage else {
            return;
        };
        let Some(session) = plain.origin.client.session else {
            return;
        };
        let mut asked = std::mem::take(&mut plain.asked).into_iter();
        for question in asked.by_ref() {
            let passed = self.runner.was_passed(&session, &question.id).await;
            let is_away = passed.is_err();
            // If the store does not answer, the question stays: asking twice is better than losing a
            // question.
            if !passed.unwrap_or(false) {
                plain.asked.push(question);
            }
            // Each further question would wait as long for a store that is away.
            if is_away {
                break;
            }
        }
        plain.asked.extend(asked);
    }

    /// The client answered a question that was relayed to it.
    pub(super) async fn on_answered(&mut self, answered: RelayedAnswer) -> Flow {
        let CallStage::Plain(plain) = &mut self.stage else {
            self.on_late_answer(answered).await;
            return Flow::Continue;
        };
        if plain.round.is_some() {
            return self.on_round_answered(answered).await;
        }
        let RelayedAnswer { id, answer } = answered;
        let asked = plain.asked.len();
        plain.asked.retain(|question| question.id != id);
        let was_asked = plain.asked.len() < asked;
        // The server has the first answer to a question already, so a second answer must not follow.
        let Some(exchange) = self.dispatch.exchange().filter(|_| was_asked) else {
            return Flow::Continue;
        };
        let control = Arc::clone(&exchange.control);
        match control.answer(&id, answer).await {
            Ok(()) => Flow::Continue,
            Err(failure) => self.end_unanswered(failure).await,
        }
    }

    /// The client sent the answer while the call became a task: the answer belongs to the question in the
    /// record.
    pub(super) async fn on_late_answer(&mut self, answered: RelayedAnswer) {
        let RelayedAnswer { id, answer } = answered;
        let Some(recorded) = self.stage.recorded() else {
            return;
        };
        let task = recorded.task();
        // A modern server's name for a question is a key, and it accepts only results as answers. A legacy server's name
        // is a JSON-RPC id.
        let is_modern = self.server.era == Era::Modern;
        let is_asked = |origin: &str| {
            if is_modern {
                quote(origin) == *id
            } else {
                *origin == *id
            }
        };
        let answers: BTreeMap<_, _> = task
            .open_questions()
            .filter(|(question, _)| is_asked(&question.origin))
            .map(|(question, request)| (question.key.clone(), stored(request, &answer)))
            .filter(|(_, answer)| !is_modern || input::refused(answer).is_none())
            .collect();
        if answers.is_empty() {
            return;
        }
        let from = (AnsweredBy::Client, self.server.outgoing.forwarded());
        // The record's change wakes its carrier. A question whose answer the store does not take stays open in the
        // task, so that the client can answer it there.
        if let Err(error) = self
            .runner
            .answer(recorded.loaded.clone(), answers, from)
            .await
        {
            warn!(
                ?error,
                "the store did not take an answer; its client can give it in the task"
            );
        }
    }
}

/// The answer in the form that the record stores.
fn stored(request: &RawValue, answer: &upstream::Answer) -> Box<RawValue> {
    let mut message = Writer::object();
    match answer {
        upstream::Answer::Result(result) => message.raw("result", result),
        upstream::Answer::Refused(error) => message.raw("error", error),
    };
    let message = message.end();
    tasks_2025::answer(request, &Object::parse(&message).unwrap_or_default())
}
