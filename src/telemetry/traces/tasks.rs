//! The spans of a task, from the times in its record: told by the replica that committed the end, whichever began the
//! call.

use super::request::whole;
use super::span::{Span, SpanKind};
use super::tracer::{are_on, random, tell};
use crate::mcp::error::own_failure;
use crate::mcp::result::error_code;
use crate::task::state::{Outcome, Question, Task};
use crate::task::trace::TaskTrace;

/// A shorter wait before the call was sent is none.
const WAIT_MS: u64 = 10;

/// The most questions that have spans of their own.
const QUESTIONS_MAX: usize = 32;

/// The call of a lost owner is carried on here.
pub(in crate::telemetry) fn taken_over(task: &Task) {
    let Some(trace) = task.trace.as_deref().filter(|_| are_on()) else {
        return;
    };
    let mut span = child(trace, "taken over", (task.updated_ms, task.updated_ms));
    span.say("raincheck.task.id", &format!("{:?}", task.id));
    tell(span);
}

/// The task has ended by a commit of this replica. `words`: its outcome, the reason and the effect.
pub(in crate::telemetry) fn ended(before: Option<&Task>, task: &Task, words: [&'static str; 3]) {
    let Some(trace) = task.trace.as_deref().filter(|_| are_on()) else {
        return;
    };
    for span in spans(before, task, trace, words) {
        tell(span);
    }
}

fn spans(
    before: Option<&Task>,
    task: &Task,
    trace: &TaskTrace,
    [outcome, reason, effect]: [&'static str; 3],
) -> Vec<Span> {
    let (began_ms, ended_ms) = (task.call_began_ms(), task.updated_ms);
    let (kind, code) = error_of(task, outcome, reason);
    let mut call = whole(trace, &task.method, &task.name, SpanKind::Server);
    (call.begin_ns, call.end_ns) = (ns(began_ms), ns(ended_ms));
    call.say("raincheck.task.id", &format!("{:?}", task.id));
    call.say("raincheck.outcome", outcome);
    call.say("raincheck.reason", reason);
    call.say("raincheck.effect", effect);
    call.count("raincheck.owners", task.fence.0);
    if task.attempts > 0 {
        call.count("raincheck.attempts", u64::from(task.attempts));
    }
    call.ended(&kind, &code);
    let mut told = vec![call];
    let sent_ms = trace.sent_ms.or(task.sent_ms);
    let until_sent_ms = sent_ms.unwrap_or(ended_ms);
    if until_sent_ms.saturating_sub(began_ms) >= WAIT_MS {
        told.push(child(trace, "queue", (began_ms, until_sent_ms)));
    }
    if let Some(sent_ms) = sent_ms {
        let mut sent = Span {
            id: trace.sent,
            parent: Some(trace.span),
            begin_ns: ns(sent_ms),
            end_ns: ns(ended_ms),
            ..whole(trace, &task.method, &task.name, SpanKind::Client)
        };
        sent.ended(&kind, &code);
        told.push(sent);
    }
    // The end forgets the questions that were not answered.
    let asked = before.map_or(&task.questions, |before| &before.questions);
    let waits = asked.iter().take(QUESTIONS_MAX);
    told.extend(waits.map(|question| {
        let answered_ms = answered_ms(question, task).unwrap_or(ended_ms);
        child(trace, "input", (question.asked_ms, answered_ms))
    }));
    told
}

fn answered_ms(question: &Question, task: &Task) -> Option<u64> {
    let same = task.questions.iter().find(|it| it.key == question.key);
    question
        .answered_ms
        .or_else(|| same.and_then(|it| it.answered_ms))
}

/// The type of the error and the code of JSON-RPC, as the conventions want them.
fn error_of(task: &Task, outcome: &str, reason: &str) -> (String, String) {
    match &task.outcome {
        Some(Outcome::Failed(error)) => {
            let code = error_code(error).unwrap_or_default().to_string();
            if own_failure(error).is_some() {
                (reason.to_owned(), code)
            } else {
                (code.clone(), code)
            }
        }
        _ if outcome == "completed" => (String::new(), String::new()),
        _ => (outcome.to_owned(), String::new()),
    }
}

/// A part of the call that only raincheck sees.
fn child(trace: &TaskTrace, name: &str, (from_ms, to_ms): (u64, u64)) -> Span {
    Span {
        trace: trace.trace,
        id: random(),
        parent: Some(trace.span),
        state: trace.state.clone(),
        name: name.to_owned(),
        kind: SpanKind::Internal,
        begin_ns: ns(from_ms),
        end_ns: ns(to_ms),
        attributes: Vec::new(),
        link: None,
        is_error: false,
    }
}

fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
