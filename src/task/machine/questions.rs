//! The questions of the wrapped server: asked, answered, delivered.

use serde_json::value::RawValue;

use super::decision::{Effect, Rejected};
use crate::mcp::input::{InputResponses, QUESTIONS_MAX};
use crate::task::digest::Digest;
use crate::task::id::{Fence, Incarnation};
use crate::task::input_rule::AnsweredBy;
use crate::task::question::{Question, QuestionStage};
use crate::task::state::{Leg, Task};
use crate::task::unanswered::REMINDER;

/// A legacy server asks in the middle of its call.
pub(super) fn ask(
    task: &mut Task,
    origin: Box<str>,
    request: Box<RawValue>,
    now_ms: u64,
) -> Result<Option<Effect>, Rejected> {
    if task.questions.len() >= QUESTIONS_MAX {
        return Err(Rejected::TooManyQuestions);
    }
    // Questions are never removed while the task is open, so no key comes twice.
    let key = format!("q{}", task.questions.len() + 1).into();
    task.questions.push(Question {
        key,
        origin,
        asked_ms: now_ms,
        reminded: false,
        answered_by: AnsweredBy::Client,
        answered_ms: None,
        stage: QuestionStage::Open(request),
    });
    Ok(None)
}

/// A modern server's round: nothing is in flight until all of it is answered.
pub(super) fn ask_round(
    task: &mut Task,
    requests: Vec<(Box<str>, Box<RawValue>)>,
    request_state: Option<Box<str>>,
    now_ms: u64,
) -> Option<Effect> {
    task.round += 1;
    for question in &mut task.questions {
        // The leg that carried these answers has come to its end.
        if let QuestionStage::Answered(answer) = &question.stage {
            question.stage = QuestionStage::Delivered(Digest::of(&[answer.get()]));
        }
    }
    task.request_state = request_state;
    let sent = task.round + task.attempts;
    if requests.is_empty() {
        // The server gave only a request state (mrtr, Client Requirements): the next leg goes without
        // answers.
        task.leg = Leg::Sent(sent + 1);
        return Some(Effect::Dispatch);
    }
    for (origin, request) in requests {
        // The server's keys repeat from round to round; the client's must not.
        let key = format!("r{}-{origin}", task.round).into();
        let stage = QuestionStage::Open(request);
        task.questions.push(Question {
            key,
            origin,
            asked_ms: now_ms,
            reminded: false,
            answered_by: AnsweredBy::Client,
            answered_ms: None,
            stage,
        });
    }
    task.leg = Leg::Parked(sent);
    // No server call is open now, so the death of a replica must not matter while the client answers.
    task.owner = None;
    None
}

pub(super) fn answer(
    task: &mut Task,
    mut answers: InputResponses,
    by: Incarnation,
    waits: bool,
    from: AnsweredBy,
) -> Result<Option<Effect>, Rejected> {
    let mut changed = false;
    for question in &mut task.questions {
        if matches!(question.stage, QuestionStage::Open(_))
            && let Some(answer) = answers.remove(&question.key)
        {
            question.stage = QuestionStage::Answered(answer);
            question.answered_by = from;
            changed = true;
        }
    }
    if !changed {
        return Err(Rejected::Unchanged);
    }
    // The reminder would stand beside a task that works again.
    if task.status_message.as_deref() == Some(REMINDER) && task.open_questions().next().is_none() {
        task.status_message = None;
    }
    match task.leg {
        Leg::Parked(sent) if task.open_questions().next().is_none() => {
            task.leg = if waits {
                Leg::Queued
            } else {
                Leg::Sent(sent + 1)
            };
            task.owner = Some(by);
            // No owner took over, but a late report of the leg before must not count for this one.
            task.fence = Fence(task.fence.0 + 1);
            Ok(Some(Effect::Dispatch))
        }
        Leg::Parked(_) => Ok(None),
        Leg::Queued | Leg::Sent(_) => Ok(Some(Effect::Deliver)),
    }
}

pub(super) fn delivered(task: &mut Task, key: &str) -> Result<Option<Effect>, Rejected> {
    let question = task.questions.iter_mut().find(|q| &*q.key == key);
    let Some(question) = question else {
        return Err(Rejected::Unchanged);
    };
    let QuestionStage::Answered(answer) = &question.stage else {
        return Err(Rejected::Unchanged);
    };
    question.stage = QuestionStage::Delivered(Digest::of(&[answer.get()]));
    Ok(None)
}

/// Returns `true` if every answer to an answered question repeats the earlier answer. Then the client sent the same
/// request again, and not another request under the same handle.
pub fn repeats(task: &Task, answers: &InputResponses) -> bool {
    answers.iter().all(|(key, answer)| {
        let Some(question) = task.questions.iter().find(|q| q.key == *key) else {
            return true;
        };
        match &question.stage {
            QuestionStage::Open(_) | QuestionStage::Withdrawn => true,
            QuestionStage::Answered(given) => given.get() == answer.get(),
            QuestionStage::Delivered(digest) => *digest == Digest::of(&[answer.get()]),
        }
    })
}
