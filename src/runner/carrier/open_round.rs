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
        // Taken out during the steps, which would add a notice of questions that are answered already.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mcp::input::{InputKind, requests_of};
    use crate::mcp::json::raw;
    use crate::task::machine::tests::task;
    use crate::task::notices::{NoticeState, Notices, ReceiverId};
    use crate::task::state::Leg;

    fn asked(requests: &str) -> OpenRound {
        let result = format!(
            r#"{{"resultType":"input_required","requestState":"s","inputRequests":{requests}}}"#
        );
        OpenRound::new(requests_of(&raw(result).unwrap()).unwrap())
    }

    fn two() -> OpenRound {
        asked(
            r#"{"b\"":{"method":"elicitation/create","params":{"message":"m"}},"a":{"method":"roots/list"}}"#,
        )
    }

    fn answer(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    /// The record of a call that was sent, whose task a receiver is notified of.
    fn record() -> Task {
        let receiver = ReceiverId::of("https://hooks.example/in");
        let mut task = task(Leg::Sent(1), true);
        task.notices = vec![Notices::new(receiver, vec![NoticeState::InputRequired], 1)];
        task
    }

    fn notified(task: &Task) -> usize {
        let text = json!(task.notices);
        text[0]["waiting"].as_array().map_or(0, Vec::len)
    }

    #[test]
    fn questions_are_requests_under_the_servers_keys() {
        let questions = two().questions();
        assert_eq!(
            questions[0],
            r#"{"jsonrpc":"2.0","id":"b\"","method":"elicitation/create","params":{"message":"m"}}"#
        );
        assert_eq!(
            questions[1],
            r#"{"jsonrpc":"2.0","id":"a","method":"roots/list"}"#
        );
        let odd = asked(r#"{"a":{}}"#).questions();
        let odd = Object::parse(&odd[0]).unwrap().get_str("method").unwrap();
        assert_eq!(InputKind::of(&odd), None);
    }

    #[test]
    fn the_call_is_sent_again_once_every_question_has_its_first_answer() {
        let mut round = two();
        round.keep(r#""a""#, answer(r#"{"roots":[]}"#));
        round.keep(r#""a""#, answer("{}"));
        round.keep(r#""c""#, answer("{}"));
        assert!(round.retry().is_none());
        round.keep(r#""b\"""#, answer(r#"{"action":"cancel"}"#));
        let retry = round.retry().unwrap();
        assert_eq!(
            &*retry.input_responses,
            r#"{"b\"":{"action":"cancel"},"a":{"roots":[]}}"#
        );
        assert_eq!(retry.request_state.as_deref(), Some("s"));
    }

    #[test]
    fn a_record_has_what_is_open_and_what_was_answered() {
        let by = Incarnation::from_text("a/1");
        let mut round = two();
        round.keep(r#""a""#, answer("{}"));
        let parked = round.in_record(record(), &by, false);
        assert_eq!((parked.leg, &parked.owner), (Leg::Parked(1), &None));
        let open: Vec<_> = parked.open_questions().map(|(q, _)| &*q.origin).collect();
        assert_eq!((open, notified(&parked)), (vec!["b\""], 1));

        round.keep(r#""b\"""#, answer("{}"));
        for (waits, leg) in [(false, Leg::Sent(2)), (true, Leg::Queued)] {
            let sent = round.in_record(record(), &by, waits);
            assert_eq!((sent.leg, sent.owner.as_ref()), (leg, Some(&by)));
            assert_eq!(sent.request_state.as_deref(), Some("s"));
            assert!(sent.open_questions().next().is_none());
            assert_eq!(notified(&sent), 0, "no question is open");
        }
        let again = asked("{}").in_record(record(), &by, false);
        assert_eq!((again.leg, again.round), (Leg::Sent(2), 1));
        assert_eq!(again.request_state.as_deref(), Some("s"));
    }
}
