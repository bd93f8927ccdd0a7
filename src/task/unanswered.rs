//! Questions that no client answers: the time of their reminders, and the action of a rule when their time is over.
//! Pure.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::input_rule::OnInputTimeout;
use super::question::Question;
use super::state::{Leg, Task};
use crate::mcp::elicitation;
use crate::mcp::input::{self, InputKind, InputResponses};
use crate::mcp::json::raw;

/// The message of a task that waited for an answer for longer than the rule's `input_reminder`.
pub const REMINDER: &str = "The question still waits for an answer";

/// The answers that the rule gives at this time, because their questions waited for too long. `None`: no question did,
/// or the rule has no answer to one of them, so that the task fails.
pub fn answers(task: &Task, now_ms: u64) -> Option<InputResponses> {
    // At its deadline the task fails in any case, so an answer would be for nothing.
    if task.is_ended() || task.deadline_ms <= now_ms {
        return None;
    }
    let is_open_call = !matches!(task.leg, Leg::Parked(_));
    let mut answers = BTreeMap::new();
    for (question, request) in overdue(task, now_ms) {
        // One question without an answer fails the task, so the answers to the others would be for nothing.
        let answer = answer(&task.on_input_timeout, request, is_open_call)?;
        answers.insert(question.key.clone(), answer);
    }
    (!answers.is_empty()).then_some(answers)
}

/// Returns `true` if the task fails at this time: its own time is over, or that of a question to which the rule has
/// no answer.
pub fn fails(task: &Task, now_ms: u64) -> bool {
    let has_overdue = overdue(task, now_ms).next().is_some();
    !task.is_ended()
        && (task.deadline_ms <= now_ms || has_overdue && answers(task, now_ms).is_none())
}

/// Notes that receivers are notified again of the questions whose time has come. Returns `false` if there is none.
pub(super) fn remind(task: &mut Task, now_ms: u64) -> bool {
    if task.reminder_ms().is_none_or(|at_ms| at_ms > now_ms) {
        return false;
    }
    let patience = task.input_reminder_ms.unwrap_or_default();
    let waited = |q: &Question| q.is_open() && q.asked_ms.saturating_add(patience) <= now_ms;
    for question in task.questions.iter_mut().filter(|q| waited(q)) {
        question.reminded = true;
    }
    task.status_message = Some(REMINDER.into());
    true
}

fn overdue(task: &Task, now_ms: u64) -> impl Iterator<Item = (&Question, &RawValue)> {
    let patience = task.input_timeout_ms.unwrap_or(u64::MAX);
    task.open_questions()
        .filter(move |(q, _)| q.asked_ms.saturating_add(patience) <= now_ms)
}

/// Returns the rule's answer to one question. Only a server whose call is open can receive the error that its client
/// gives no answer to a question that is no elicitation.
fn answer(rule: &OnInputTimeout, request: &RawValue, is_open_call: bool) -> Option<Box<RawValue>> {
    let request: Value = serde_json::from_str(request.get()).ok()?;
    let is_form = request
        .get("method")
        .and_then(Value::as_str)
        .and_then(InputKind::of);
    let said = match (rule, is_form?) {
        (OnInputTimeout::Decline, InputKind::Elicitation) => Some(json!({"action": "decline"})),
        (OnInputTimeout::Cancel, InputKind::Elicitation) => Some(json!({"action": "cancel"})),
        (
            OnInputTimeout::Decline | OnInputTimeout::Cancel,
            InputKind::Sampling | InputKind::Roots,
        ) => {
            let error = json!({"code": -1, "message": "No answer came in time"});
            let error = raw(error.to_string()).ok()?;
            return is_open_call.then(|| input::refusal(&error));
        }
        (OnInputTimeout::Answer(content), InputKind::Elicitation) => {
            let content: Value = serde_json::from_str(content).ok()?;
            let is_fit = elicitation::accepts(request.get("params")?, &content);
            is_fit.then(|| json!({"action": "accept", "content": content}))
        }
        (OnInputTimeout::Fail, _)
        | (OnInputTimeout::Answer(_), InputKind::Sampling | InputKind::Roots) => None,
    };
    raw(said?.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::id::Incarnation;
    use crate::task::input_rule::AnsweredBy;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::machine::{Effect, OwnerEvent, Rejected, TaskEvent, step};
    use crate::task::state::Status;

    fn asks(method: &str, rule: OnInputTimeout) -> Task {
        let mut task = task(Leg::Sent(1), true);
        task.on_input_timeout = rule;
        task.input_reminder_ms = Some(100);
        let request = json!({"method": method, "params": {"message": "?", "requestedSchema": {
            "type": "object", "properties": {"sure": {"type": "boolean"}},
        }}});
        let asked = OwnerEvent::Asked {
            origin: "7".into(),
            request: raw(request.to_string()).unwrap(),
        };
        let asked = TaskEvent::Owner(task.fence, asked);
        step(&task, asked, NOW).unwrap().task
    }

    fn given(method: &str, rule: OnInputTimeout) -> Option<String> {
        let task = asks(method, rule);
        assert!(answers(&task, NOW + 299).is_none(), "not yet");
        let answers = answers(&task, NOW + 300)?;
        Some(answers["q1"].get().to_owned())
    }

    #[test]
    fn a_rule_declines_cancels_or_answers_in_time_and_else_the_task_fails() {
        let elicit = "elicitation/create";
        let answer = |content: &str| OnInputTimeout::Answer(content.into());
        assert_eq!(given(elicit, OnInputTimeout::Fail), None);
        let declined = given(elicit, OnInputTimeout::Decline).unwrap();
        assert_eq!(declined, r#"{"action":"decline"}"#);
        let cancelled = given(elicit, OnInputTimeout::Cancel).unwrap();
        assert_eq!(cancelled, r#"{"action":"cancel"}"#);
        let accepted = given(elicit, answer(r#"{"sure":false}"#)).unwrap();
        let accepted: Value = serde_json::from_str(&accepted).unwrap();
        assert_eq!(accepted["content"]["sure"], false);
        assert_eq!(given(elicit, answer(r#"{"sure":"no"}"#)), None);
        let refused = given("sampling/createMessage", OnInputTimeout::Decline).unwrap();
        assert!(input::refused(&raw(refused).unwrap()).is_some());
        assert_eq!(given("roots/list", answer("{}")), None);
    }

    #[test]
    fn a_tick_fails_only_what_the_rule_does_not_answer() {
        let tick = |rule, now_ms| step(&asks("elicitation/create", rule), TaskEvent::Tick, now_ms);
        let failed = tick(OnInputTimeout::Fail, NOW + 300).unwrap();
        assert_eq!(failed.task.status(), Status::Failed);
        assert_eq!(failed.effect, Some(Effect::CancelUpstream));
        let reminded = tick(OnInputTimeout::Decline, NOW + 300).unwrap().task;
        assert_eq!(reminded.status(), Status::InputRequired);
        let again = step(&reminded, TaskEvent::Tick, NOW + 301).unwrap_err();
        assert_eq!(again, Rejected::Unchanged);
    }

    #[test]
    fn a_question_is_told_of_again_once() {
        let asked = asks("elicitation/create", OnInputTimeout::Fail);
        assert_eq!(asked.due_ms(), Some(NOW + 100));
        let early = step(&asked, TaskEvent::Tick, NOW + 99).unwrap_err();
        assert_eq!(early, Rejected::Unchanged);
        let reminded = step(&asked, TaskEvent::Tick, NOW + 100).unwrap().task;
        assert_eq!(reminded.status_message.as_deref(), Some(REMINDER));
        assert_eq!(reminded.due_ms(), Some(NOW + 300));
        let answered = TaskEvent::Answered {
            answers: BTreeMap::from([("q1".into(), raw("{}".into()).unwrap())]),
            by: Incarnation::from_text("a/1"),
            waits: false,
            from: AnsweredBy::Operator,
        };
        let answered = step(&reminded, answered, NOW + 200).unwrap().task;
        assert_eq!(answered.status_message, None);
        assert_eq!(answered.questions[0].answered_by, AnsweredBy::Operator);
    }
}
