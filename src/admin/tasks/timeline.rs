//! The timeline of a task, for operators. Pure.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::base::utc::rfc3339;
use crate::task::cancelled_by::CancelledBy;
use crate::task::history::EndedTask;
use crate::task::input_rule::AnsweredBy;
use crate::task::state::{Outcome, Task};

/// A call and its record that are nearer than this began together.
const APART_MS: u64 = 100;

/// The effect of a call that did not run.
const NONE: &str = "none";

/// Returns the events of the task and their times, as far as the record contains them.
pub(super) fn of_task(task: &Task) -> Value {
    let mut events: Vec<(u64, Cow<'_, str>)> = vec![(task.created_ms, "created".into())];
    events.extend(beginning(task.call_began_ms(), task.created_ms));
    let effect = task
        .outcome
        .as_ref()
        .map_or("", |outcome| outcome.words().2);
    // What surely did not run was not sent in the end, though its sending had begun.
    let sent_ms = task.sent_ms.filter(|_| effect != NONE);
    events.extend(sent_ms.map(|sent_ms| (sent_ms, "sent to the server".into())));
    events.extend(task.questions.iter().map(|question| {
        let what = match (question.is_open(), question.answered_by) {
            (true, _) => "asked a question, which is open",
            (false, AnsweredBy::Client) => "asked a question",
            (false, AnsweredBy::Operator) => "asked a question, which an operator answered",
            (false, AnsweredBy::Rule) => "asked a question, which nobody answered: the rule did",
        };
        (question.asked_ms, what.into())
    }));
    if let Some(outcome) = &task.outcome {
        let what = match outcome {
            Outcome::Completed(_) => "completed".into(),
            Outcome::Failed(_) => "failed".into(),
            Outcome::Cancelled => cancelled(task.cancelled_by.as_ref()),
        };
        events.push((task.updated_ms, what));
    } else if task.updated_ms > task.created_ms {
        events.push((task.updated_ms, "last change".into()));
    }
    in_order(events)
}

/// Returns the events of an ended task whose record is gone.
pub(super) fn of_entry(ended: &EndedTask<'_>) -> Value {
    let (group, times) = (&ended.group, &ended.times);
    let mut events: Vec<(u64, Cow<'_, str>)> = vec![(ended.created_ms(), "created".into())];
    events.extend(beginning(ended.began_ms(), ended.created_ms()));
    if let Some(queued_ms) = times.queued_ms.filter(|_| group.effect != NONE) {
        let sent_ms = ended.created_ms().saturating_add(queued_ms);
        events.push((sent_ms, "sent to the server".into()));
    }
    let what = match &*group.outcome {
        "tool_error" => "completed".into(),
        "cancelled" => cancelled(group.cancelled_by.as_ref()),
        outcome => outcome.into(),
    };
    events.push((times.ended_ms, what));
    in_order(events)
}

/// The beginning of a call that became a task later. Most calls begin with their record, and one line is enough for both.
fn beginning(began_ms: u64, created_ms: u64) -> Option<(u64, Cow<'static, str>)> {
    let is_apart = began_ms + APART_MS <= created_ms;
    is_apart.then(|| (began_ms, "the call began".into()))
}

/// The events of a timeline, each with its distance from the first one.
fn in_order(mut events: Vec<(u64, Cow<'_, str>)>) -> Value {
    events.sort_by_key(|(at_ms, _)| *at_ms);
    let first_ms = events.first().map_or(0, |(at_ms, _)| *at_ms);
    let events = events.into_iter().map(
        |(at_ms, what)| json!({"at": rfc3339(at_ms), "what": what, "after_ms": at_ms - first_ms}),
    );
    events.collect()
}

/// The end of a cancelled task.
fn cancelled(by: Option<&CancelledBy>) -> Cow<'static, str> {
    match by {
        None => "cancelled".into(),
        Some(CancelledBy::Client) => "cancelled by its client".into(),
        Some(CancelledBy::Departure) => "cancelled: its client went away".into(),
        Some(CancelledBy::Operator(None)) => "cancelled by an operator".into(),
        Some(CancelledBy::Operator(Some(name))) => {
            format!("cancelled by the operator {name}").into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::Leg;

    #[test]
    fn a_cancelled_task_says_who_cancelled_it() {
        let ada = CancelledBy::Operator(Some("ada".into()));
        for (by, text) in [
            (None, "cancelled"),
            (Some(CancelledBy::Client), "cancelled by its client"),
            (
                Some(CancelledBy::Departure),
                "cancelled: its client went away",
            ),
            (
                Some(CancelledBy::Operator(None)),
                "cancelled by an operator",
            ),
            (Some(ada), "cancelled by the operator ada"),
        ] {
            let task = Task {
                outcome: Some(Outcome::Cancelled),
                updated_ms: 1_020_000,
                cancelled_by: by.clone(),
                ..task(Leg::Sent(1), true)
            };
            let ended = EndedTask::of(&task).unwrap();
            for timeline in [of_task(&task), of_entry(&ended)] {
                let last = timeline.as_array().unwrap().last().unwrap();
                assert_eq!(
                    (&last["what"], &last["after_ms"]),
                    (&json!(text), &json!(20_000))
                );
            }
        }
    }
}
