//! The one function that decides what may happen to a task.
//!
//! It is pure: no clock, no randomness, no IO. A caller that loses a compare-and-set loads the record and
//! asks again; the answer depends on nothing but the record, the event and the time.

use serde_json::value::RawValue;

use super::cancelled_by::CancelledBy;
use super::digest::Digest;
use super::events::replay::SubscribedNotices;
use super::id::{Fence, Incarnation};
use super::input_rule::AnsweredBy;
use super::last_news::LastNews;
use super::log_terms::SealedPoint;
use super::messages::{self, TaskMessage};
use super::notices::{NoticeEvent, ReceiverId};
use super::progress::Progress;
use super::question::QuestionStage;
use super::resume_point::ResumePoint;
use super::state::{Leg, Outcome, Reach, Task};
use super::unanswered::{self};
use crate::mcp::error::{Failure, Reason};
use crate::mcp::input::{InputResponses, QUESTIONS_MAX};

mod decision;
mod notices;
mod questions;
mod times;

pub use decision::{Effect, Rejected, Step};
pub use questions::repeats;
use questions::{answer, ask, ask_round, delivered};

/// The events that may happen to a task.
#[derive(Debug, Clone)]
pub enum TaskEvent {
    /// The owner of that fence reports. The events of a late owner are refused.
    Owner(Fence, OwnerEvent),
    /// The client answers, by key. Answers to unknown or answered keys are ignored (tasks.md, Task Update Requests).
    /// If they complete a modern server's round, `by` becomes the owner and must dispatch the next leg; `waits` is
    /// `true` if that leg waits for its turn.
    Answered {
        answers: InputResponses,
        by: Incarnation,
        waits: bool,
        from: AnsweredBy,
    },
    /// A parked call becomes a task that is announced to the client.
    Announced,
    /// The call is cancelled.
    Cancel { by: CancelledBy },
    /// The client refused to answer a question of a server that accepts answers only: the call fails.
    AnswerRefused,
    /// Time has passed: the task is overdue, or receivers are notified of a question again. The answers of a rule to
    /// questions that waited for too long come as [`TaskEvent::Answered`] (see [`unanswered::answers`]).
    Tick,
    /// The owner of that fence no longer carries the call, and no other replica can.
    Abandoned { fence: Fence, failure: Failure },
    /// The owner of that fence is lost, and only the client that comes back can have the call carried on: a call with a
    /// log runs on its client's session, and the server may want its client's credentials.
    Orphaned { fence: Fence },
    /// A replica that found the task takes over from the lost owner of that fence.
    Claimed {
        fence: Fence,
        by: Incarnation,
        reach: Reach,
        takeover: TakeoverMode,
    },
    /// An event of the first notice of this receiver.
    Notice(ReceiverId, NoticeEvent),
    /// The caller subscribed to more, or to less.
    Subscribed(SubscribedNotices),
}

/// The way a finder carries a lost owner's call on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeoverMode {
    /// The finder fetches the answer of the call, which still runs at the server.
    Resume,
    /// The finder dispatches the call: for the first time, or again where that is safe.
    Dispatch,
    /// The finder dispatches the call when it has its turn.
    Queue,
}

/// The owner's report about the wrapped server.
#[derive(Debug, Clone)]
pub enum OwnerEvent {
    Progressed {
        message: Option<Box<str>>,
        progress: Option<Progress>,
        /// The new resume point, if it has moved.
        resume: Option<ResumePoint>,
        /// The server's messages since the last commit.
        messages: Vec<TaskMessage>,
    },
    /// The leg has its turn and goes to the server now.
    Dispatched,
    /// Another process can fetch the answer from this point. `job`: the id of the job that the call started at the server.
    Resumable {
        point: ResumePoint,
        job: Option<Box<str>>,
    },
    /// The call started the job of this id at the server.
    JobStarted(Box<str>),
    /// The owner shuts down and leaves the call to others.
    Released,
    /// A call with a log can be resumed at the server from this point.
    LogPoint(SealedPoint),
    /// The run failed; the call is safe to repeat and is sent again.
    Repeated,
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
        last: LastNews,
    },
    /// The server was notified that no client waits.
    Told,
}

/// The status message of a task that was cancelled because its client went away.
const LEFT: &str = "The client went away before it heard of this task";

/// Decides what `event` does to `task` at `now_ms`. The store counts the revision.
pub fn step(task: &Task, event: TaskEvent, now_ms: u64) -> Result<Step, Rejected> {
    let mut next = task.clone();
    let effect = match event {
        TaskEvent::Owner(fence, _) if fence != task.fence => return Err(Rejected::NotOwner),
        TaskEvent::Owner(_, OwnerEvent::Told) if task.must_tell => {
            // The client sees no change: the task ended when it ended.
            next.must_tell = false;
            next.resume = None;
            return unseen(next);
        }
        TaskEvent::Notice(receiver, event) => return notices::step(next, receiver, event, now_ms),
        TaskEvent::Subscribed(all) => return notices::subscribe(next, all, now_ms),
        _ if task.is_ended() => return Err(Rejected::Ended),
        // Nothing is in flight, or the owner gave the call up: it has nothing more to report.
        TaskEvent::Owner(..) if task.owner.is_none() || task.released => {
            return Err(Rejected::NotOwner);
        }
        TaskEvent::Owner(_, event) => owner_step(&mut next, event, now_ms)?,
        TaskEvent::Answered {
            answers,
            by,
            waits,
            from,
        } => answer(&mut next, answers, by, waits, from)?,
        TaskEvent::Announced if task.announced => return Err(Rejected::Unchanged),
        TaskEvent::Announced => {
            next.announced = true;
            None
        }
        TaskEvent::AnswerRefused => fail(&mut next, task.failure(Reason::AnswerRefused)),
        TaskEvent::Cancel { by } => {
            next.status_message = (by == CancelledBy::Departure).then(|| LEFT.into());
            next.cancelled_by = Some(by);
            end(&mut next, Outcome::Cancelled)
        }
        TaskEvent::Tick if unanswered::fails(task, now_ms) => {
            fail(&mut next, task.failure(Reason::Deadline))
        }
        TaskEvent::Tick if unanswered::remind(&mut next, now_ms) => None,
        TaskEvent::Tick => return Err(Rejected::Unchanged),
        TaskEvent::Abandoned { fence, .. }
        | TaskEvent::Orphaned { fence }
        | TaskEvent::Claimed { fence, .. }
            if fence != task.fence =>
        {
            return Err(Rejected::NotOwner);
        }
        // A parked modern call has nothing in flight: the replica that gets the answers carries it on.
        TaskEvent::Abandoned { .. } | TaskEvent::Claimed { .. }
            if task.owner.is_none() && task.log.is_none() && !task.waits_for_client() =>
        {
            return Err(Rejected::Unchanged);
        }
        TaskEvent::Orphaned { .. } => orphan(&mut next)?,
        TaskEvent::Abandoned { failure, .. } => {
            fail(&mut next, failure);
            // No replica reaches the server of the lost owner's call, so no replica can tell the server.
            next.must_tell = false;
            next.resume = None;
            None
        }
        TaskEvent::Claimed {
            by,
            reach,
            takeover,
            ..
        } => claim(&mut next, by, reach, takeover),
    };
    // No two revisions have the same time, so that a client that compares times sees each change.
    next.updated_ms = now_ms.max(task.updated_ms + 1);
    times::keep(task, &mut next, now_ms);
    notices::keep(task, &mut next);
    Ok(Step { task: next, effect })
}

/// A change that the client does not see.
#[expect(clippy::unnecessary_wraps, reason = "what every decision is")]
fn unseen(task: Task) -> Result<Step, Rejected> {
    Ok(Step { task, effect: None })
}

/// No replica carries the call until its client comes back.
fn orphan(task: &mut Task) -> Result<Option<Effect>, Rejected> {
    if task.owner.is_none() || task.log.is_none() && !task.needs_client() {
        return Err(Rejected::Unchanged);
    }
    task.owner = None;
    Ok(None)
}

fn claim(task: &mut Task, by: Incarnation, reach: Reach, takeover: TakeoverMode) -> Option<Effect> {
    task.owner = Some(by);
    // From here on every report of the lost owner is refused.
    task.fence = Fence(task.fence.0 + 1);
    task.reach = reach;
    task.released = false;
    take_over(task, takeover)
}

fn take_over(task: &mut Task, takeover: TakeoverMode) -> Option<Effect> {
    match takeover {
        TakeoverMode::Resume => Some(Effect::Resume),
        TakeoverMode::Dispatch => {
            dispatch(task);
            Some(Effect::Dispatch)
        }
        TakeoverMode::Queue => {
            queue(task);
            None
        }
    }
}

fn owner_step(task: &mut Task, event: OwnerEvent, now_ms: u64) -> Result<Option<Effect>, Rejected> {
    match event {
        OwnerEvent::Progressed {
            message,
            progress,
            resume,
            messages,
        } => {
            let is_news = (message.is_some() || progress != task.progress)
                && !goes_back(task, progress.as_ref());
            if !is_news && messages.is_empty() {
                return Err(Rejected::Unchanged);
            }
            if is_news {
                task.status_message = message.or_else(|| task.status_message.take());
                task.progress = progress;
            }
            for message in messages {
                messages::add(&mut task.messages, message);
            }
            task.resume = resume.or_else(|| task.resume.take());
            Ok(None)
        }
        OwnerEvent::Dispatched if task.leg != Leg::Queued => Err(Rejected::Unchanged),
        OwnerEvent::Dispatched => {
            send(task);
            Ok(Some(Effect::Dispatch))
        }
        OwnerEvent::Resumable { point, job } => Ok(resumable(task, point, job)),
        OwnerEvent::JobStarted(job) => job_started(task, job),
        // The client that comes back to a call with a log has it carried on, and no finder.
        OwnerEvent::Released if task.log.is_some() || task.needs_client() => orphan(task),
        OwnerEvent::Released => {
            task.released = true;
            Ok(None)
        }
        OwnerEvent::LogPoint(point) => log_resumes_at(task, point),
        OwnerEvent::Repeated if !task.is_repeatable() => Err(Rejected::Unchanged),
        OwnerEvent::Repeated => {
            dispatch(task);
            Ok(Some(Effect::Dispatch))
        }
        OwnerEvent::Asked { .. } | OwnerEvent::RoundAsked { .. } if task.leg == Leg::Queued => {
            Err(Rejected::OutOfTurn)
        }
        // A resumed stream repeats the question.
        OwnerEvent::Asked { origin, .. } if task.questions.iter().any(|q| q.origin == origin) => {
            Err(Rejected::Unchanged)
        }
        OwnerEvent::Asked { origin, request } => ask(task, origin, request, now_ms),
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
        OwnerEvent::Delivered { key } => delivered(task, &key),
        OwnerEvent::Ended {
            outcome,
            message,
            last,
        } => Ok(end_by_server(task, outcome, message, last)),
        OwnerEvent::Told => Err(Rejected::Unchanged),
    }
}

fn resumable(task: &mut Task, point: ResumePoint, job: Option<Box<str>>) -> Option<Effect> {
    task.resume = Some(point);
    task.job = job.or_else(|| task.job.take());
    None
}

fn job_started(task: &mut Task, job: Box<str>) -> Result<Option<Effect>, Rejected> {
    if task.job.as_ref() == Some(&job) {
        return Err(Rejected::Unchanged);
    }
    task.job = Some(job);
    Ok(None)
}

/// Ends the task for a server that itself ended the call: no replica has to notify the server.
fn end_by_server(
    task: &mut Task,
    outcome: Outcome,
    message: Option<Box<str>>,
    LastNews { progress, messages }: LastNews,
) -> Option<Effect> {
    if progress.is_some() && !goes_back(task, progress.as_ref()) {
        task.progress = progress;
    }
    for message in messages {
        messages::add(&mut task.messages, message);
    }
    task.status_message = message;
    // `end` expects a server that still runs the call, so what it sets for that server is taken back below.
    end(task, outcome);
    task.must_tell = false;
    task.resume = None;
    None
}

fn log_resumes_at(task: &mut Task, point: SealedPoint) -> Result<Option<Effect>, Rejected> {
    let log = task.log.as_mut().ok_or(Rejected::Unchanged)?;
    log.point = Some(point);
    Ok(None)
}

/// The call goes to the server, for the first time or again.
fn dispatch(task: &mut Task) {
    queue(task);
    send(task);
}

/// The leg that waited for its turn goes to the server. Its number counts the legs before it: one for each
/// round and each attempt.
fn send(task: &mut Task) {
    task.leg = Leg::Sent(task.round + task.attempts + 1);
    // The old message said that the call waits for its turn.
    task.status_message = None;
}

/// The call waits for its turn, for the first time or again: nothing is in flight.
fn queue(task: &mut Task) {
    match task.leg {
        // Nothing was sent since the last dispatch, so no attempt is used up.
        Leg::Queued => {}
        Leg::Sent(_) | Leg::Parked(_) => task.attempts += 1,
    }
    task.leg = Leg::Queued;
    // The questions of a run end with the run; only a modern leg is sent again with its answers.
    for question in &mut task.questions {
        let goes_along = task.round > 0 && matches!(question.stage, QuestionStage::Answered(_));
        if !goes_along {
            question.origin = "".into();
            question.stage = match std::mem::replace(&mut question.stage, QuestionStage::Withdrawn)
            {
                QuestionStage::Open(_) | QuestionStage::Withdrawn => QuestionStage::Withdrawn,
                QuestionStage::Answered(answer) => {
                    QuestionStage::Delivered(Digest::of(&[answer.get()]))
                }
                QuestionStage::Delivered(digest) => QuestionStage::Delivered(digest),
            };
        }
    }
    // The next run has its own point to resume from, and counts its progress from the start.
    task.resume = None;
    task.job = None;
    task.progress = None;
}

/// Returns `true` if the progress is less than the known one. Progress only grows (progress, Progress Flow): a
/// resumed stream repeats its earlier messages.
fn goes_back(task: &Task, progress: Option<&Progress>) -> bool {
    let (Some(known), Some(new)) = (&task.progress, progress) else {
        return false;
    };
    new.progress < known.progress
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "callers give away the failure that they got"
)]
fn fail(task: &mut Task, failure: Failure) -> Option<Effect> {
    task.status_message = Some(failure.message().into());
    end(task, Outcome::Failed(failure.to_error().to_raw()))
}

fn end(task: &mut Task, outcome: Outcome) -> Option<Effect> {
    task.outcome = Some(outcome);
    // Delivered ones stay: a retry that comes after the end is still compared with the answers that were given.
    task.questions
        .retain(|q| matches!(q.stage, QuestionStage::Delivered(_)));
    task.request_state = None;
    // The owner of a call with a log tells the server itself: no other replica has the client's session.
    task.must_tell = task.owner.is_some() && matches!(task.leg, Leg::Sent(_)) && task.log.is_none();
    if !task.must_tell {
        task.resume = None;
    }
    task.must_tell.then_some(Effect::CancelUpstream)
}

#[cfg(test)]
pub(super) mod log_tests;
#[cfg(test)]
pub(crate) mod tests;
