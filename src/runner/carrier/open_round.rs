//! A round of questions that a modern server put to a client that waits on its connection. Nothing of it is stored
//! while the client answers. Pure.

use serde_json::value::RawValue;

use crate::mcp::envelope;
use crate::mcp::input::{InputResponses, Requests};
use crate::mcp::json::{Object, Writer, quote};
use crate::task::id::Incarnation;
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::{OwnerEvent, Step, TaskEvent, step};
use crate::task::state::Task;
use crate::upstream::Retry;

/// The number of rounds with questions in one call whose client waits.
pub(super) const ROUNDS_MAX: usize = 16;

/// The last round of a call without a record, and the client's answers so far.
pub(super) struct OpenRound {
    asked: Requests,
    /// By the server's keys.
    answers: InputResponses,
}

impl OpenRound {
    pub(super) fn new(asked: Requests) -> Self {
        Self {
            asked,
            answers: InputResponses::new(),
        }
    }

    /// Returns `true` if the server asks for nothing, and only wants the request again.
    pub(super) fn is_empty(&self) -> bool {
        self.asked.requests.is_empty()
    }

    /// The questions as JSON-RPC requests. The id of each is the server's key for it.
    pub(super) fn questions(&self) -> Vec<String> {
        let requests = self.asked.requests.iter();
        requests
            .map(|(key, request)| {
                let request = Object::parse(request.get()).unwrap_or_default();
                let method = request.get_str("method").unwrap_or_default();
                let params = request.get("params").map(RawValue::get);
                envelope::request(&quote(key), &method, params)
            })
            .collect()
    }

    /// Keeps the answer to the question with this id, unless the question has an answer.
    pub(super) fn keep(&mut self, id: &str, answer: Box<RawValue>) {
        let mut keys = self.asked.requests.iter().map(|(key, _)| key);
        if let Some(key) = keys.find(|key| quote(key) == *id) {
            self.answers.entry(key.clone()).or_insert(answer);
        }
    }

    /// The second half of the request, if every question has an answer.
    pub(super) fn retry(&self) -> Option<Retry> {
        let mut responses = Writer::object();
        for (key, _) in &self.asked.requests {
            responses.raw(key, self.answers.get(key)?.get());
        }
        Some(Retry {
            input_responses: responses.end().into(),
            request_state: self.asked.request_state.as_deref().map(Into::into),
        })
    }

    /// The record of the call as if it had been there when the server asked. Receivers are notified only of a round
    /// that is still open. `waits`: the next leg waits for its turn.
    pub(super) fn in_record(&self, mut task: Task, by: &Incarnation, waits: bool) -> Task {
        let is_over = self.retry().is_some();
        let kept = is_over.then(|| std::mem::take(&mut task.notices));
        let asked = OwnerEvent::RoundAsked {
            requests: self.asked.requests.clone(),
            request_state: self.asked.request_state.clone(),
        };
        task = stepped(&task, TaskEvent::Owner(task.fence, asked));
        let answers = task.open_questions().filter_map(|(question, _)| {
            let answer = self.answers.get(&question.origin)?;
            Some((question.key.clone(), answer.clone()))
        });
        let answered = TaskEvent::Answered {
            answers: answers.collect(),
            by: by.clone(),
            waits,
            from: AnsweredBy::Client,
        };
        task = stepped(&task, answered);
        task.notices.extend(kept.into_iter().flatten());
        task
    }
}

/// The task after the event, or as it was if the event changes nothing.
fn stepped(task: &Task, event: TaskEvent) -> Task {
    let decided = step(task, event, task.created_ms);
    decided.map_or_else(|_| task.clone(), |Step { task, .. }| task)
}
