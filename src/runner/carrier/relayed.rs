//! Questions of a legacy server to a legacy client that waits for its call: relayed as they are, and
//! the answers passed back, for as long as there is no record.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::super::seat::Answered;
use super::{Carrier, Flow};
use crate::mcp::envelope;
use crate::mcp::json::{Object, Writer};
use crate::mcp::tasks_2025;
use crate::store::ledger::NotApplied;
use crate::task::machine::Event;
use crate::upstream;

impl Carrier {
    pub(super) async fn relay_question(&mut self, question: upstream::Question) {
        if let Some(seat) = &self.seat {
            let params = question.params.as_deref().map(RawValue::get);
            let asked = envelope::request(&question.id, &question.method, params);
            seat.ask(asked, self.deadline).await;
        }
        // Until it is answered: a record would have it as its own.
        self.asked.push(question);
    }

    /// Forgets the questions whose answers came to another replica: the server has them from there.
    pub(super) async fn forget_passed(&mut self) {
        let Some(session) = self.call.session else {
            return;
        };
        let mut asked = std::mem::take(&mut self.asked).into_iter();
        for question in asked.by_ref() {
            match self.runner.has_passed(&session, &question.id).await {
                Ok(true) => {}
                Ok(false) => self.asked.push(question),
                // It is rather asked twice than lost.
                Err(_away) => {
                    self.asked.push(question);
                    break;
                }
            }
        }
        self.asked.extend(asked);
    }

    /// The client answered. What became the record's question meanwhile is answered there.
    pub(super) async fn on_answered(&mut self, answered: Answered) -> Flow {
        let Answered { id, answer } = answered;
        let asked = self.asked.len();
        self.asked.retain(|question| question.id != id);
        if self.asked.len() == asked {
            return self.on_late_answer(&id, &answer).await;
        }
        let Some(exchange) = &self.exchange else {
            return Flow::Continue;
        };
        match exchange.control.answer(&id, answer).await {
            Ok(()) => Flow::Continue,
            Err(failure) => self.end_unanswered(failure).await,
        }
    }

    /// It was sent while the call became a task.
    async fn on_late_answer(&mut self, id: &str, answer: &upstream::Answer) -> Flow {
        let Some(kept) = &self.kept else {
            return Flow::Continue;
        };
        let answers: BTreeMap<_, _> = kept
            .loaded
            .task
            .open_questions()
            .filter(|(question, _)| *question.origin == *id)
            .map(|(question, request)| (question.key.clone(), stored(request, answer)))
            .collect();
        if answers.is_empty() {
            return Flow::Continue;
        }
        let event = Event::Answered {
            answers,
            by: self.runner.incarnation.clone(),
            // The call is open while it asks.
            waits: false,
        };
        match self.runner.ledger.apply(&kept.loaded, event).await {
            Ok((loaded, _)) => self.see(loaded).await,
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            Err(NotApplied::Gone) => self.lost().await,
            // The question is in the task, for another answer.
            Err(NotApplied::Store(_)) => Flow::Continue,
        }
    }
}

/// As the record has it.
fn stored(request: &RawValue, answer: &upstream::Answer) -> Box<RawValue> {
    let mut message = Writer::object();
    match answer {
        upstream::Answer::Result(result) => message.raw("result", result),
        upstream::Answer::Refused(error) => message.raw("error", error),
    };
    let message = message.end();
    tasks_2025::answer(request, &Object::parse(&message).unwrap_or_default())
}
