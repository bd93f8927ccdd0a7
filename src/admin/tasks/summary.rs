//! A task as an operator sees it: one line of the list, and one task with its timeline. Pure.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::timeline;
use crate::base::utc::rfc3339;
use crate::mcp::json::Object;
use crate::runner::learned::memory::LearnedTool;
use crate::task::cancelled_by::CancelledBy;
use crate::task::history::{Acknowledged, EndGroup, EndedTask};
use crate::task::id::{Incarnation, TaskId};
use crate::task::recovery;
use crate::task::state::{Leg, Outcome, Task};
use crate::task::task_end::TaskEnd;

/// The details of a task that the operator sees beside its state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) now_ms: u64,
    /// Arguments, results and the texts of the server. `None`: `admin.show_payloads` is off.
    pub(super) payloads: Option<Payloads<'a>>,
    /// The learned duration of calls of the same tool.
    pub(super) usual: Option<&'a LearnedTool>,
}

/// The parts of a task that lie beside its record.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Payloads<'a> {
    pub(super) request: Option<&'a str>,
    pub(super) result: Option<&'a str>,
}

/// One line of the list.
pub(super) fn line(task: &Task, now_ms: u64) -> Value {
    let mut line = json!({
        "id": task.id.to_string(),
        "state": task.status().word(),
        "tool": &*task.name,
        "caller": task.caller.short(),
        "replica": task.owner.as_ref().map(Incarnation::replica),
        "created": rfc3339(task.created_ms),
        "updated": rfc3339(task.updated_ms),
        "began": rfc3339(task.call_began_ms()),
        "seconds": task.call_took_ms(now_ms) / 1000,
        "announced": task.announced,
        "questions": task.open_questions().count(),
    });
    let Some(members) = line.as_object_mut() else {
        return line;
    };
    if let Some(label) = &task.label {
        members.insert("label".into(), json!(label));
    }
    if let Some(progress) = &task.progress {
        members.insert("progress".into(), json!(progress));
    }
    if task.waits_for_client() {
        members.insert("waits_for_client".into(), true.into());
    }
    if let Some(outcome) = &task.outcome {
        describe(members, outcome);
    }
    cancelled_by(members, task.cancelled_by.as_ref());
    line
}

/// Acknowledgements of failures, by task.
pub(super) type Acks = HashMap<TaskId, Acknowledged>;

pub(super) fn acknowledged(ack: &Acknowledged) -> Value {
    json!({ "at": rfc3339(ack.at_ms), "by": &*ack.by, "note": &*ack.note })
}

/// A task of a list.
#[derive(Debug)]
pub(super) enum ListedTask {
    Open(Box<Task>),
    Ended(Box<EndedTask<'static>>),
}

impl ListedTask {
    pub(super) fn id(&self) -> TaskId {
        match self {
            Self::Open(task) => task.id,
            Self::Ended(ended) => ended.id,
        }
    }

    pub(super) fn created_ms(&self) -> u64 {
        match self {
            Self::Open(task) => task.created_ms,
            Self::Ended(ended) => ended.created_ms(),
        }
    }

    /// The time that the call has taken until now, or took until it ended.
    pub(super) fn took_ms(&self, now_ms: u64) -> u64 {
        match self {
            Self::Open(task) => task.call_took_ms(now_ms),
            Self::Ended(ended) => ended.times.took_ms,
        }
    }

    pub(super) fn tool(&self) -> &str {
        match self {
            Self::Open(task) => &task.name,
            Self::Ended(ended) => &ended.group.tool,
        }
    }

    /// The label of the caller, or the short form of its hash.
    pub(super) fn caller(&self) -> String {
        match self {
            Self::Open(task) => match task.label.as_deref() {
                Some(label) => label.to_owned(),
                None => task.caller.short(),
            },
            Self::Ended(ended) => {
                let group = &ended.group;
                let is_labelled = !group.label.is_empty();
                String::from(if is_labelled {
                    &*group.label
                } else {
                    &*group.caller
                })
            }
        }
    }

    pub(super) fn ended(&self) -> Option<&EndedTask<'static>> {
        match self {
            Self::Open(_) => None,
            Self::Ended(ended) => Some(ended),
        }
    }

    pub(super) fn line(&self, now_ms: u64, acks: &Acks) -> Value {
        match self {
            Self::Open(task) => line(task, now_ms),
            Self::Ended(ended) => ended_line(ended, acks.get(&ended.id)),
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::Open(task) => task.status().word(),
            Self::Ended(ended) => &ended.group.outcome,
        }
    }
}

/// The state of a task that has ended.
fn end_state<'g>(group: &'g EndGroup<'_>) -> &'g str {
    match &*group.outcome {
        "tool_error" => "completed",
        outcome => outcome,
    }
}

/// One line of the list, of an entry of the history.
pub(super) fn ended_line(ended: &EndedTask<'_>, ack: Option<&Acknowledged>) -> Value {
    let (group, times) = (&ended.group, &ended.times);
    let state = end_state(group);
    let mut line = json!({
        "id": ended.id.to_string(),
        "state": state,
        "tool": group.tool,
        "caller": group.caller,
        "replica": Some(&group.replica).filter(|replica| !replica.is_empty()),
        "created": rfc3339(ended.created_ms()),
        "updated": rfc3339(times.ended_ms),
        "began": rfc3339(ended.began_ms()),
        "seconds": times.took_ms / 1000,
        "announced": !times.is_unannounced,
        "questions": 0,
        "outcome": group.outcome,
        "took_ms": times.took_ms,
        "queued_ms": times.queued_ms,
        "input_ms": times.input_ms,
        "result_bytes": times.result_bytes,
        "attempts": times.attempts,
        "parent": times.parent.map(|parent| parent.to_string()),
        "job": times.job,
    });
    let Some(members) = line.as_object_mut() else {
        return line;
    };
    let texts = [
        ("label", &group.label),
        ("reason", &group.reason),
        ("effect", &group.effect),
    ];
    for (key, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        members.insert(key.to_owned(), text.as_ref().into());
    }
    if let Some(code) = group.code {
        members.insert("code".into(), code.into());
    }
    cancelled_by(members, group.cancelled_by.as_ref());
    if let Some(ack) = ack {
        members.insert("acknowledged".into(), acknowledged(ack));
    }
    line
}

fn cancelled_by(members: &mut Map<String, Value>, by: Option<&CancelledBy>) {
    let Some(by) = by else { return };
    members.insert("cancelled_by".into(), by.word().into());
    if let Some(name) = by.name() {
        members.insert("operator".into(), name.into());
    }
}

/// One task whose record is gone, as the history keeps it.
pub(super) fn kept(ended: &EndedTask<'_>, ack: Option<&Acknowledged>) -> Value {
    let mut kept = ended_line(ended, ack);
    let Some(members) = kept.as_object_mut() else {
        return kept;
    };
    let mut put = |key: &str, value: Value| members.insert(key.to_owned(), value);
    put("kept", "in the history only: its record has expired".into());
    put("open_questions", json!([]));
    put("timeline", timeline::of_entry(ended));
    kept
}

/// The number of tasks by state. Tasks that completed with an error of their tool are counted by themselves.
pub(super) fn counts(tasks: &[ListedTask]) -> Map<String, Value> {
    let words = [
        "working",
        "input_required",
        "completed",
        "tool_error",
        "failed",
        "cancelled",
    ];
    let mut counts = words.map(|word| (word, 0_u64));
    for task in tasks {
        let word = task.word();
        for (_, count) in counts.iter_mut().filter(|(known, _)| *known == word) {
            *count += 1;
        }
    }
    let counts = counts.into_iter();
    counts
        .map(|(word, count)| (word.to_owned(), count.into()))
        .collect()
}

/// One task, where another names it.
pub(super) fn link(task: &Task) -> Value {
    json!({
        "id": task.id.to_string(),
        "state": task.status().word(),
        "tool": &*task.name,
    })
}

fn describe(members: &mut Map<String, Value>, outcome: &Outcome) {
    let (word, reason, effect) = outcome.words();
    members.insert("outcome".into(), word.into());
    if !reason.is_empty() {
        members.insert("reason".into(), reason.into());
        members.insert("effect".into(), effect.into());
    }
    if let Some(code) = outcome.server_code() {
        members.insert("code".into(), code.into());
    }
}

/// One task, with its timeline and its open questions.
pub(super) fn whole(task: &Task, shown: Shown<'_>) -> Value {
    let mut whole = line(task, shown.now_ms);
    let Some(members) = whole.as_object_mut() else {
        return whole;
    };
    let mut put = |key: &str, value: Value| members.insert(key.to_owned(), value);
    put("deadline", rfc3339(task.deadline_ms).into());
    put(
        "expires",
        rfc3339(task.created_ms.saturating_add(task.ttl_ms)).into(),
    );
    put("attempts", task.attempts.into());
    put("owners", task.fence.0.into());
    let leg = match task.leg {
        Leg::Queued => "queued",
        Leg::Sent(_) => "sent",
        Leg::Parked(_) => "parked",
    };
    if !task.is_ended() {
        put("leg", leg.into());
    }
    if let Some(job) = &task.job {
        put("job", json!(job));
    }
    if let Some(fate) = recovery::fate(task) {
        put("if_lost", fate.into());
    }
    put("timeline", timeline::of_task(task));
    if let Some(usual) = shown.usual {
        let usual = json!({
            "tasks": usual.seen,
            "median_ms": usual.median_ms,
            "p90_ms": usual.p90_ms,
        });
        put("usual", usual);
    }
    let open: Vec<Value> = task
        .open_questions()
        .map(|(question, request)| {
            json!({
                "key": &*question.key,
                "asked": rfc3339(question.asked_ms),
                "request": request,
                "fields": fields(request),
            })
        })
        .collect();
    put("open_questions", open.into());
    if let Some(payloads) = shown.payloads {
        if let Some(message) = &task.status_message {
            put("message", (&**message).into());
        }
        let messages = task.messages.iter();
        let messages =
            messages.map(|said| json!({ "at": rfc3339(said.at_ms), "text": &*said.text }));
        put("messages", messages.collect());
        put("arguments", arguments(payloads.request));
        put("result", result(task, payloads.result));
    }
    whole
}

/// The names of the fields of a form, in the order of the server, which JSON objects on their way to a reader do not keep.
fn fields(request: &RawValue) -> Vec<String> {
    let request = Object::parse(request.get()).unwrap_or_default();
    let properties = request
        .get_object("params")
        .and_then(|params| params.get_object("requestedSchema"))
        .and_then(|schema| schema.get_object("properties"))
        .unwrap_or_default();
    properties
        .iter()
        .map(|(name, _)| name.to_string())
        .collect()
}

/// The arguments of the stored request. Not every call has one: a call that is never sent again is not stored.
fn arguments(request: Option<&str>) -> Value {
    let params = || {
        let stored: Value = serde_json::from_str(request?).ok()?;
        // The stored request holds its params as a text, so they are parsed on their own.
        let params = Object::parse(stored.get("params")?.as_str()?).ok()?;
        params
            .get("arguments")
            .map(|arguments| shown_json(arguments.get()))
    };
    params().unwrap_or(Value::Null)
}

fn result(task: &Task, kept: Option<&str>) -> Value {
    match TaskEnd::of(task, kept.map(str::as_bytes)) {
        Some(TaskEnd::Completed(result)) => shown_json(result.text()),
        Some(TaskEnd::Failed(error)) => shown_json(error.get()),
        Some(TaskEnd::Cancelled) | None => Value::Null,
    }
}

/// Returns a value as it is, or its JSON as a string where it is nested too deeply to be parsed.
fn shown_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::machine::tests::task;
    use crate::task::messages::TaskMessage;
    use crate::task::state::Payload;

    fn shown(payloads: Option<Payloads<'_>>) -> Shown<'_> {
        Shown {
            now_ms: 1_010_000,
            payloads,
            usual: None,
        }
    }

    #[test]
    fn a_line_says_why_raincheck_failed_a_task() {
        let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
        let failed = Task {
            outcome: Some(Outcome::Failed(failure.to_error().to_raw())),
            ..task(Leg::Sent(1), true)
        };
        let line = line(&failed, 0);
        assert_eq!(line["state"], "failed");
        assert_eq!(
            (&line["reason"], &line["effect"]),
            (&json!("owner_lost"), &json!("unknown"))
        );
    }

    #[test]
    fn arguments_that_are_nested_too_deeply_are_shown_as_text() {
        let nested = format!("{}1{}", "[".repeat(4_000), "]".repeat(4_000));
        let params = format!(r#"{{"arguments":{nested}}}"#);
        let request = json!({ "params": params }).to_string();
        assert_eq!(arguments(Some(&request)), json!(nested));
    }

    #[test]
    fn the_fields_of_a_form_stay_in_the_order_of_the_server() {
        let properties = r#"{"params":{"requestedSchema":{"properties":{"zip":{},"age":{}}}}}"#;
        let request = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(fields(&request(properties)), ["zip", "age"]);
        assert_eq!(fields(&request(r#"{"method":"roots/list"}"#)), [""; 0]);
    }

    #[test]
    fn payloads_are_shown_only_if_the_operator_wants_them() {
        let result = RawValue::from_string(r#"{"content":"s3cret"}"#.to_owned()).unwrap();
        let ended = Task {
            outcome: Some(Outcome::Completed(Payload::Inline(result))),
            status_message: Some("s3cret".into()),
            messages: vec![TaskMessage::new(1_000_000, "s3cret")],
            ..task(Leg::Sent(1), true)
        };
        let without = whole(&ended, shown(None));
        assert!(!without.to_string().contains("s3cret"), "{without}");
        let payloads = Payloads {
            request: Some(r#"{"params":"{\"arguments\":{\"a\":1}}"}"#),
            result: None,
        };
        let with = whole(&ended, shown(Some(payloads)));
        assert_eq!(with["arguments"]["a"], 1);
        assert_eq!(with["messages"][0]["text"], "s3cret");
        assert_eq!(with["result"]["content"], "s3cret");
        assert_eq!(with["timeline"][0]["what"], "created");
        assert_eq!(with["timeline"][0]["after_ms"], 0);
    }
}
