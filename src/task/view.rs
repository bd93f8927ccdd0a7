//! A task as a client sees it, in the exact shapes that strict clients accept: integer `ttlMs` and
//! `pollIntervalMs`, RFC 3339 dates, no `null`.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::value::RawValue;

use super::id::TaskId;
use super::policy::poll_interval_at;
use super::progress::Progress;
use super::state::{Outcome, Payload, Task};
use crate::base::utc::{date, text};
use crate::mcp::json::Writer;

/// `CreateTaskResult` (tasks.md, Task Creation): the seed state, flat.
pub fn create_result(task: &Task, poll_interval_ms: u64) -> String {
    let mut out = Writer::with_capacity(384);
    out.str("resultType", "task");
    common(&mut out, task, poll_interval_ms);
    out.end()
}

/// The result of `tasks/get`. `shown` is the result of the call, if the record only names it or the client gets an excerpt.
pub fn get_result(task: &Task, shown: Option<&str>, poll_interval_ms: u64) -> String {
    let mut out = Writer::with_capacity(512);
    out.str("resultType", "complete");
    detailed(&mut out, task, shown, poll_interval_ms);
    out.end()
}

/// Returns the `params` of `notifications/tasks`: the task as in the response to `tasks/get`, without `resultType`,
/// with the id of the subscription as JSON.
pub fn notification_params(
    task: &Task,
    shown: Option<&str>,
    subscription: &str,
    poll_interval_ms: u64,
) -> String {
    let mut out = Writer::with_capacity(512);
    let mut meta = Writer::with_capacity(96);
    meta.raw("io.modelcontextprotocol/subscriptionId", subscription);
    progress(&mut meta, task);
    out.raw("_meta", &meta.end());
    status(&mut out, task, shown, poll_interval_ms);
    out.end()
}

/// Returns a number for the state of a task that clients see: a poll that would show the same number has no news.
/// Changes that are none of the clients' business, such as another owner, do not change it.
pub fn shown(task: &Task) -> u64 {
    // The number stays in this process, so it need not be the same in another one.
    let mut hasher = DefaultHasher::new();
    task.status().word().hash(&mut hasher);
    task.status_message.hash(&mut hasher);
    if let Some(Progress { progress, total }) = &task.progress {
        (progress.to_bits(), total.map(f64::to_bits)).hash(&mut hasher);
    }
    for (question, _) in task.open_questions() {
        question.key.hash(&mut hasher);
    }
    hasher.finish()
}

fn detailed(out: &mut Writer, task: &Task, shown: Option<&str>, poll_interval_ms: u64) {
    if task.progress.is_some() {
        let mut meta = Writer::with_capacity(64);
        progress(&mut meta, task);
        out.raw("_meta", &meta.end());
    }
    status(out, task, shown, poll_interval_ms);
}

fn progress(meta: &mut Writer, task: &Task) {
    let numbers = task
        .progress
        .as_ref()
        .and_then(|p| serde_json::to_string(p).ok());
    if let Some(numbers) = numbers {
        meta.raw("io.raincheck/progress", &numbers);
    }
}

fn status(out: &mut Writer, task: &Task, shown: Option<&str>, poll_interval_ms: u64) {
    common(out, task, poll_interval_ms);
    match &task.outcome {
        Some(Outcome::Completed(Payload::Inline(result))) => {
            out.raw("result", shown.unwrap_or_else(|| result.get()));
        }
        Some(Outcome::Completed(Payload::Kept { .. })) => {
            out.raw("result", shown.unwrap_or("{}"));
        }
        Some(Outcome::Failed(error)) => {
            out.raw("error", error.get());
        }
        Some(Outcome::Cancelled) => {}
        None => {
            if let Some(requests) = input_requests(task) {
                out.raw("inputRequests", &requests);
            }
        }
    }
}

/// The open questions as `InputRequests`; `None` where nothing is asked.
pub fn input_requests(task: &Task) -> Option<String> {
    let mut open = task.open_questions().peekable();
    open.peek()?;
    let mut out = Writer::with_capacity(512);
    for (question, request) in open {
        out.raw(&question.key, RawValue::get(request));
    }
    Some(out.end())
}

fn common(out: &mut Writer, task: &Task, poll_interval_ms: u64) {
    out.str("taskId", task.id.text(&mut TaskId::text_buffer()));
    out.str("status", task.status().word());
    if let Some(message) = &task.status_message {
        out.str("statusMessage", message);
    }
    out.str("createdAt", text(&date(task.created_ms)));
    out.str("lastUpdatedAt", text(&date(task.updated_ms)));
    out.number("ttlMs", task.ttl_ms);
    out.number("pollIntervalMs", poll_interval_ms);
}

/// The poll interval where nothing is learned. It grows as the task ages, and stops growing at the end, so that every answer
/// about an ended task is the same.
pub fn usual_poll_interval_ms(task: &Task, now_ms: u64) -> u64 {
    let until_ms = match task.outcome {
        Some(_) => task.updated_ms,
        None => now_ms,
    };
    let age_ms = until_ms.saturating_sub(task.created_ms);
    poll_interval_at(task.poll_interval_ms, age_ms)
}

#[cfg(test)]
mod tests {
    use super::{get_result, usual_poll_interval_ms};
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome};

    #[test]
    fn it_is_polled_less_as_it_ages_and_always_alike_once_it_has_ended() {
        let mut task = task(Leg::Sent(1), true);
        let seen = |task: &_, age_ms: u64| {
            get_result(task, None, usual_poll_interval_ms(task, 1_000_000 + age_ms))
        };
        assert!(seen(&task, 199).contains(r#""pollIntervalMs":100}"#));
        assert!(seen(&task, 200).contains(r#""pollIntervalMs":200}"#));
        task.outcome = Some(Outcome::Cancelled);
        task.updated_ms += 200;
        assert_eq!(seen(&task, 200), seen(&task, 100_000));
    }
}
