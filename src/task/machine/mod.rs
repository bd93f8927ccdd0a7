//! The one function that decides what may happen to a task.
//!
//! Pure: no clock, no randomness, no IO. Whoever loses a compare-and-set loads again and asks
//! again; the answer depends on nothing but the record, the event and the time.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::id::{Fence, Incarnation};
use super::state::{Digest, Leg, Outcome, Progress, Question, Stage, Task};
use crate::mcp::error::{Failure, Reason};
use crate::mcp::input::QUESTIONS_MAX;

/// What may happen to a task.
#[derive(Debug, Clone)]
pub enum Event {
    /// From the owner of that fence; a late owner's events are refused.
    Owner(Fence, OwnerEvent),
    /// The client's answers, by key. Answers to unknown or answered keys are ignored
    /// (tasks.md, Task Update Requests). Where they complete a modern server's round, `by`
    /// becomes the owner and must dispatch the next leg.
    Answered {
        answers: BTreeMap<Box<str>, Box<RawValue>>,
        by: Incarnation,
    },
    /// A parked call becomes a task that the client hears of.
    Announced,
    /// The client asked for it, or went away before it heard of the task.
    Cancel { reason: Option<Reason> },
    /// Time has passed.
    Tick,
    /// Nobody carries the call any more and nobody can.
    Abandoned(Failure),
}

/// What the owner saw of the wrapped server.
#[derive(Debug, Clone)]
pub enum OwnerEvent {
    Progressed {
        message: Option<Box<str>>,
        progress: Option<Progress>,
    },
    /// A legacy server asks; its call stays open. The JSON-RPC id, and method and params as JSON.
    Asked {
        origin: Box<str>,
        request: Box<RawValue>,
    },
    /// A modern server ended its leg with questions, by its own keys.
    RoundAsked {
        requests: Vec<(Box<str>, Box<RawValue>)>,
        request_state: Option<Box<str>>,
    },
    /// The server has this answer.
    Delivered { key: Box<str> },
    Ended {
        outcome: Outcome,
        message: Option<Box<str>>,
    },
    /// The server was told that nobody waits.
    Told,
}

/// What to do once the step is committed. Derivable from the record by whoever loads it next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Pass the undelivered answers on to the open legacy call.
    Deliver,
    /// Dispatch the next leg of a modern call with all answers of the round.
    Dispatch,
    /// Tell the server that nobody waits.
    CancelUpstream,
}

/// A decided change.
#[derive(Debug, Clone)]
pub struct Step {
    pub task: Task,
    pub effect: Option<Effect>,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// The task has ended; that never changes.
    Ended,
    /// Somebody else carries the call now.
    NotOwner,
    /// There is nothing to change, and that is no fault.
    Unchanged,
    /// The server asks more than may be asked.
    TooManyQuestions,
    /// The server ended its leg with questions while others of that leg are open: no era does.
    OutOfTurn,
}

/// Decides what `event` does to `task` at `now_ms`. The revision is the store's business.
pub fn step(task: &Task, event: Event, now_ms: u64) -> Result<Step, Rejected> {
    let mut next = task.clone();
    let effect = match event {
        Event::Owner(fence, _) if fence != task.fence => return Err(Rejected::NotOwner),
        Event::Owner(_, OwnerEvent::Told) if task.must_tell => {
            // The client sees no change: the task ended when it ended.
            next.must_tell = false;
            return Ok(Step {
                task: next,
                effect: None,
            });
        }
        _ if task.is_ended() => return Err(Rejected::Ended),
        // Nothing is in flight: whoever carried the last leg has nothing more to say.
        Event::Owner(..) if task.owner.is_none() => return Err(Rejected::NotOwner),
        Event::Owner(_, event) => owner_step(&mut next, event, now_ms)?,
        Event::Answered { answers, by } => answer(&mut next, answers, by)?,
        Event::Announced if task.announced => return Err(Rejected::Unchanged),
        Event::Announced => {
            next.announced = true;
            None
        }
        Event::Cancel { reason } => {
            next.status_message = reason.map(|r| task.failure(r).message().into());
            end(&mut next, Outcome::Cancelled)
        }
        Event::Tick if task.due_ms().is_some_and(|due| due <= now_ms) => {
            fail(&mut next, task.failure(Reason::Deadline))
        }
        Event::Tick => return Err(Rejected::Unchanged),
        // A parked modern call has nothing in flight: whoever gets the answers carries it on.
        Event::Abandoned(_) if matches!(task.leg, Leg::Parked(_)) || task.owner.is_none() => {
            return Err(Rejected::Unchanged);
        }
        Event::Abandoned(failure) => {
            fail(&mut next, failure);
            // Whoever finds this cannot reach the lost owner's call: there is nobody to tell.
            next.must_tell = false;
            None
        }
    };
    // Never twice the same time, so that a client that compares times sees each change.
    next.updated_ms = now_ms.max(task.updated_ms + 1);
    Ok(Step { task: next, effect })
}

fn owner_step(task: &mut Task, event: OwnerEvent, now_ms: u64) -> Result<Option<Effect>, Rejected> {
    match event {
        OwnerEvent::Progressed { message, progress } => {
            if message.is_none() && progress == task.progress {
                return Err(Rejected::Unchanged);
            }
            task.status_message = message.or_else(|| task.status_message.take());
            task.progress = progress;
            Ok(None)
        }
        OwnerEvent::Asked { origin, request } => {
            if task.questions.len() >= QUESTIONS_MAX {
                return Err(Rejected::TooManyQuestions);
            }
            let key = format!("q{}", task.questions.len() + 1).into();
            task.questions.push(Question {
                key,
                origin,
                asked_ms: now_ms,
                stage: Stage::Open(request),
            });
            Ok(None)
        }
        OwnerEvent::RoundAsked { .. } if task.open_questions().next().is_some() => {
            Err(Rejected::OutOfTurn)
        }
        OwnerEvent::RoundAsked {
            requests,
            request_state,
        } => {
            if task.questions.len() + requests.len() > QUESTIONS_MAX {
                return Err(Rejected::TooManyQuestions);
            }
            Ok(ask_round(task, requests, request_state, now_ms))
        }
        OwnerEvent::Delivered { key } => {
            let question = task.questions.iter_mut().find(|q| q.key == key);
            let Some(question) = question else {
                return Err(Rejected::Unchanged);
            };
            let Stage::Answered(answer) = &question.stage else {
                return Err(Rejected::Unchanged);
            };
            question.stage = Stage::Delivered(Digest::of(&[answer.get()]));
            Ok(None)
        }
        OwnerEvent::Ended { outcome, message } => {
            task.status_message = message;
            end(task, outcome);
            // The server itself ended the call.
            task.must_tell = false;
            Ok(None)
        }
        OwnerEvent::Told => Err(Rejected::Unchanged),
    }
}

/// A modern server's round: nothing is in flight until all of it is answered.
fn ask_round(
    task: &mut Task,
    requests: Vec<(Box<str>, Box<RawValue>)>,
    request_state: Option<Box<str>>,
    now_ms: u64,
) -> Option<Effect> {
    task.round += 1;
    for question in &mut task.questions {
        // The leg that carried these answers has come to its end.
        if let Stage::Answered(answer) = &question.stage {
            question.stage = Stage::Delivered(Digest::of(&[answer.get()]));
        }
    }
    task.request_state = request_state;
    let sent = match task.leg {
        Leg::Queued => 0,
        Leg::Sent(n) | Leg::Parked(n) => n,
    };
    if requests.is_empty() {
        // Only a state to come back with (mrtr, Client Requirements): the next leg goes at once.
        task.leg = Leg::Sent(sent + 1);
        return Some(Effect::Dispatch);
    }
    for (origin, request) in requests {
        // The server's keys repeat from round to round; the client's must not.
        let key = format!("r{}-{origin}", task.round).into();
        let stage = Stage::Open(request);
        task.questions.push(Question {
            key,
            origin,
            asked_ms: now_ms,
            stage,
        });
    }
    task.leg = Leg::Parked(sent);
    task.owner = None;
    None
}

fn answer(
    task: &mut Task,
    mut answers: BTreeMap<Box<str>, Box<RawValue>>,
    by: Incarnation,
) -> Result<Option<Effect>, Rejected> {
    let mut changed = false;
    for question in &mut task.questions {
        if matches!(question.stage, Stage::Open(_))
            && let Some(answer) = answers.remove(&question.key)
        {
            question.stage = Stage::Answered(answer);
            changed = true;
        }
    }
    if !changed {
        return Err(Rejected::Unchanged);
    }
    match task.leg {
        Leg::Parked(sent) if task.open_questions().next().is_none() => {
            task.leg = Leg::Sent(sent + 1);
            task.owner = Some(by);
            task.fence = Fence(task.fence.0 + 1);
            Ok(Some(Effect::Dispatch))
        }
        Leg::Parked(_) => Ok(None),
        Leg::Queued | Leg::Sent(_) => Ok(Some(Effect::Deliver)),
    }
}

fn fail(task: &mut Task, failure: Failure) -> Option<Effect> {
    task.status_message = Some(failure.message().into());
    end(task, Outcome::Failed(failure.to_error().to_raw()))
}

fn end(task: &mut Task, outcome: Outcome) -> Option<Effect> {
    task.outcome = Some(outcome);
    task.questions
        .retain(|q| matches!(q.stage, Stage::Delivered(_)));
    task.request_state = None;
    task.must_tell = task.owner.is_some() && matches!(task.leg, Leg::Sent(_));
    task.must_tell.then_some(Effect::CancelUpstream)
}

/// True where every answer that names a question already answered repeats the answer given: the
/// same request again, not another one under the same handle.
pub fn repeats(task: &Task, answers: &BTreeMap<Box<str>, Box<RawValue>>) -> bool {
    answers.iter().all(|(key, answer)| {
        let Some(question) = task.questions.iter().find(|q| q.key == *key) else {
            return true;
        };
        match &question.stage {
            Stage::Open(_) => true,
            Stage::Answered(given) => given.get() == answer.get(),
            Stage::Delivered(digest) => *digest == Digest::of(&[answer.get()]),
        }
    })
}

#[cfg(test)]
mod tests;
