//! The spans of a task, from the times in its record: exported by the replica that committed the end, whichever began
//! the call.

use super::keys;
use super::request::whole;
use super::span::{Span, SpanKind};
use super::tracer::{are_on, random, tell};
use crate::mcp::error::own_failure;
use crate::mcp::result::error_code;
use crate::task::question::Question;
use crate::task::state::{Outcome, Task};
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
    span.say(&keys::TASK, &format!("{:?}", task.id));
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

fn spans<'s>(
    before: Option<&Task>,
    task: &'s Task,
    trace: &'s TaskTrace,
    [outcome, reason, effect]: [&'static str; 3],
) -> Vec<Span<'s>> {
    let (began_ms, ended_ms) = (task.call_began_ms(), task.updated_ms);
    let (kind, code) = error_of(task, outcome, reason);
    let mut call = whole(trace, &task.method, &task.name, SpanKind::Server);
    (call.begin_ns, call.end_ns) = (ns(began_ms), ns(ended_ms));
    call.say(&keys::TASK, &format!("{:?}", task.id));
    call.say(&keys::OUTCOME, outcome);
    call.say(&keys::REASON, reason);
    call.say(&keys::EFFECT, effect);
    if let Some(job) = &task.job {
        call.say(&keys::JOB, job);
    }
    call.count("raincheck.owners", task.fence.0);
    if task.attempts > 0 {
        call.count("raincheck.attempts", u64::from(task.attempts));
    }
    call.ended(&kind, &code);
    let mut told = vec![call];
    // The call may have been sent before its record was made. Then only the trace has that time.
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
fn child<'s>(trace: &'s TaskTrace, name: &'s str, (from_ms, to_ms): (u64, u64)) -> Span<'s> {
    Span {
        trace: trace.trace,
        id: random(),
        parent: Some(trace.span),
        state: trace.state.as_deref(),
        name: [name, "", ""],
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

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::mcp::trace_id::HexId;
    use crate::task::input_rule::AnsweredBy;
    use crate::task::machine::tests::task;
    use crate::task::question::QuestionStage;
    use crate::task::state::Leg;

    fn traced() -> Task {
        Task {
            began_ms: Some(1_000),
            created_ms: 1_000,
            sent_ms: Some(1_500),
            trace: Some(Box::new(TaskTrace {
                trace: HexId::from_bytes([1; 16]),
                span: HexId::from_bytes([2; 8]),
                parent: Some(HexId::from_bytes([3; 8])),
                sent: HexId::from_bytes([4; 8]),
                state: None,
                request: "7".into(),
                version: "2026-07-28".into(),
                sent_ms: None,
                is_piped: false,
            })),
            ..task(Leg::Sent(1), true)
        }
    }

    fn asked(key: &str, asked_ms: u64, answered_ms: Option<u64>) -> Question {
        Question {
            key: key.into(),
            origin: "".into(),
            asked_ms,
            reminded: false,
            answered_by: AnsweredBy::Client,
            answered_ms,
            stage: QuestionStage::Open(RawValue::NULL.to_owned()),
        }
    }

    fn times(span: &Span<'_>) -> (String, u64, u64) {
        let ms = |ns: u64| ns / 1_000_000;
        (span.name.concat(), ms(span.begin_ns), ms(span.end_ns))
    }

    fn named<const N: usize>(spans: [(&str, u64, u64); N]) -> [(String, u64, u64); N] {
        spans.map(|(name, begin_ms, end_ms)| (name.to_owned(), begin_ms, end_ms))
    }

    #[test]
    fn the_record_tells_the_whole_call() {
        let mut before = traced();
        before.questions = vec![asked("a", 1_600, Some(1_700)), asked("b", 1_800, None)];
        let mut after = traced();
        after.updated_ms = 2_000;
        after.outcome = Some(Outcome::Cancelled);
        let trace = after.trace.clone().unwrap();
        let words = ["cancelled", "", ""];
        let told = spans(Some(&before), &after, &trace, words);
        let found: Vec<_> = told.iter().map(times).collect();
        assert_eq!(
            found,
            named([
                ("tools/call tool", 1_000, 2_000),
                ("queue", 1_000, 1_500),
                ("tools/call tool", 1_500, 2_000),
                ("input", 1_600, 1_700),
                // Nobody answered: it was waited for to the end.
                ("input", 1_800, 2_000),
            ])
        );
        assert!(told[0].is_error && told[0].id == trace.span);
        assert!(told[1..].iter().all(|it| it.parent == Some(trace.span)));
        assert_eq!(told[2].id, trace.sent);
    }

    #[test]
    fn a_call_that_was_never_sent_was_only_waiting() {
        let mut after = traced();
        (after.sent_ms, after.leg, after.updated_ms) = (None, Leg::Queued, 3_000);
        after.outcome = Some(Outcome::Cancelled);
        let trace = after.trace.clone().unwrap();
        let told = spans(None, &after, &trace, ["cancelled", "", ""]);
        let found: Vec<_> = told.iter().map(times).collect();
        assert_eq!(
            found,
            named([("tools/call tool", 1_000, 3_000), ("queue", 1_000, 3_000)])
        );
    }
}
