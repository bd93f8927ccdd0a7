//! The texts about tasks for a person: lists, one task, its questions. Pure.

use std::fmt::Write as _;

use serde_json::Value;

use crate::base::printable::printable_json;
use crate::cli::table::{cleaned, short, table};

/// As JSON on one line, or as a person reads it.
pub(super) fn said(as_json: bool, value: &Value, person: impl FnOnce(&Value) -> String) -> String {
    if as_json {
        printable_json(&format!("{value}\n")).into_owned()
    } else {
        person(value)
    }
}

pub(super) fn listed(page: &Value) -> String {
    let tasks = members(page, "tasks");
    let head = [
        "id", "state", "tool", "took", "ended", "replica", "caller", "remarks",
    ];
    let head = head.map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(tasks.iter().map(|task| {
        // The commands find a task by the beginning of its id.
        let id: String = text(task, "id").chars().take(8).collect();
        [
            id,
            text(task, "state").to_owned(),
            short(text(task, "tool")),
            age(at(task, "seconds").as_u64().unwrap_or_default()),
            ended(task).unwrap_or_default(),
            short(text(task, "replica")),
            short(caller(task)),
            remarks(task),
        ]
    }));
    let mut out = if tasks.is_empty() {
        "  no tasks\n".to_owned()
    } else {
        table(&rows)
    };
    // A page of tasks that have ended has no counts: they are not all looked at.
    if let Some(counts) = at(page, "counts").as_object() {
        let counts = counts
            .iter()
            .map(|(state, count)| format!("{count} {state}"));
        let _ = writeln!(out, "\n  {}", counts.collect::<Vec<_>>().join(", "));
    }
    if let Some(fail @ 1..) = at(page, "fail_if_lost").as_u64() {
        let _ = writeln!(out, "  {fail} would fail if their replica were lost");
    }
    if let Some(next) = at(page, "next_offset").as_u64() {
        let total = at(page, "total");
        let _ = writeln!(
            out,
            "  {} of {total} shown; --offset {next} shows more",
            tasks.len()
        );
    }
    if let Some(next) = at(page, "next").as_str() {
        let _ = writeln!(out, "\n  there are more; --after {next} shows them");
    }
    if at(page, "partial") == true {
        out.push_str("  there are more open tasks than one list looks at\n");
    }
    if at(page, "more_ended") == true {
        out.push_str("  more tasks have ended before these: --state ended shows them\n");
    }
    if at(page, "history") == false {
        out.push_str("  no history is kept (history.keep): only open tasks are on a list\n");
    }
    if at(page, "lost") == true {
        out.push_str("  the store has lost some of the tasks that ended\n");
    }
    out
}

/// The time of the end, to the second.
fn ended(task: &Value) -> Option<String> {
    at(task, "outcome").as_str()?;
    let (second, _) = text(task, "updated").split_once('.')?;
    Some(format!("{second}Z"))
}

/// The label of the caller, or the beginning of its hash.
fn caller(task: &Value) -> &str {
    let label = at(task, "label").as_str();
    label.unwrap_or_else(|| text(task, "caller"))
}

/// Returns the remarks on a task: progress, open questions, the reason of its failure.
fn remarks(task: &Value) -> String {
    let mut remarks = Vec::new();
    match at(task, "questions").as_u64() {
        Some(0) | None => {}
        Some(1) => remarks.push("asks a question".to_owned()),
        Some(count) => remarks.push(format!("asks {count} questions")),
    }
    let progress = at(task, "progress");
    // After the end the last progress is no news.
    if !progress.is_null() && at(task, "outcome").is_null() {
        let total = at(progress, "total");
        let of = if total.is_null() {
            String::new()
        } else {
            format!(" of {}", number(total))
        };
        remarks.push(format!("{}{of}", number(at(progress, "progress"))));
    }
    if let Some(reason) = at(task, "reason").as_str() {
        remarks.push(format!("{reason}, effect {}", text(task, "effect")));
    }
    remarks.extend(cancelled_by(task));
    if let Some(code) = at(task, "code").as_i64() {
        remarks.push(format!("the server's error {code}"));
    }
    remarks.extend(acknowledged(task).map(|words| format!("acknowledged{words}")));
    if at(task, "outcome") == "tool_error" {
        remarks.push("the tool says that it failed".to_owned());
    }
    // A task that was not announced is a call whose client still has its request open.
    if at(task, "announced") == false && at(task, "outcome").is_null() {
        remarks.push("its client waits".to_owned());
    }
    remarks.join("; ")
}

/// Returns who cancelled a task, if that was not its client.
fn cancelled_by(task: &Value) -> Option<String> {
    let word = at(task, "cancelled_by").as_str()?;
    let by = match (word, at(task, "operator").as_str()) {
        ("client", _) => return None,
        ("departure", _) => "its client went away".to_owned(),
        ("operator", None) => "by an operator".to_owned(),
        (_, None) => word.to_owned(),
        (_, Some(name)) => format!("by {name}"),
    };
    Some(short(&by))
}

/// The name and the note of an acknowledgement, to follow "acknowledged".
fn acknowledged(task: &Value) -> Option<String> {
    let ack = at(task, "acknowledged").as_object()?;
    let of = |key: &str| ack.get(key).and_then(Value::as_str).unwrap_or_default();
    let by = Some(of("by")).filter(|by| !by.is_empty());
    let note = Some(of("note")).filter(|note| !note.is_empty());
    let by = by.map_or_else(String::new, |by| format!(" by {by}"));
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    Some(short(&format!("{by}{note}")))
}

/// A number as people write it: servers say 5.0 where they mean 5.
fn number(value: &Value) -> String {
    let text = value.to_string();
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

pub(super) fn one_line(task: &Value) -> String {
    let remarks = remarks(task);
    let separator = if remarks.is_empty() { "" } else { ": " };
    let seconds = age(at(task, "seconds").as_u64().unwrap_or_default());
    format!("{seconds} {}{separator}{remarks}", text(task, "state"))
}

pub(super) fn shown(task: &Value) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let names = [
        "id",
        "state",
        "tool",
        "label",
        "caller",
        "replica",
        "waits_for_client",
        "if_lost",
        "leg",
        "job",
        "began",
        "created",
        "updated",
        "deadline",
        "expires",
        "kept",
        "parent",
        "attempts",
        "owners",
        "outcome",
        "reason",
        "effect",
        "cancelled_by",
        "operator",
        "message",
        "progress",
        "arguments",
        "result",
    ];
    for name in names {
        let value = match at(task, name) {
            Value::Null => continue,
            Value::String(text) => short(text),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        };
        rows.push([name.to_owned(), value]);
    }
    if let Some(words) = acknowledged(task) {
        let at = text(at(task, "acknowledged"), "at");
        rows.push(["acknowledged".to_owned(), format!("{at}{words}")]);
    }
    for (name, key) in [("related to", "related"), ("named by", "named_by")] {
        for other in members(task, key) {
            let id: String = text(other, "id").chars().take(8).collect();
            let (state, tool) = (text(other, "state"), short(text(other, "tool")));
            rows.push([name.to_owned(), format!("{id} {state} {tool}")]);
        }
    }
    let mut out = table(&rows);
    out.push_str(&timeline(task));
    for question in questions(task) {
        out.push('\n');
        out.push_str(&question_text(question));
    }
    out
}

/// The timeline of a task, with distances from its beginning, and the last messages of the server.
fn timeline(task: &Value) -> String {
    let mut out = String::new();
    let events = at(task, "timeline").as_array().into_iter().flatten();
    let events: Vec<_> = events
        .map(|event| {
            let after_ms = at(event, "after_ms").as_u64().unwrap_or_default();
            let after = format!("+{}", age(after_ms / 1000));
            [
                text(event, "at").to_owned(),
                after,
                text(event, "what").to_owned(),
            ]
        })
        .collect();
    let _ = write!(out, "\n{}", table(&events));
    let messages = at(task, "messages").as_array().into_iter().flatten();
    let messages: Vec<_> = messages
        .map(|said| [text(said, "at").to_owned(), short(text(said, "text"))])
        .collect();
    if !messages.is_empty() {
        let _ = write!(out, "\n{}", table(&messages));
    }
    out
}

pub(super) fn is_now(task: &Value) -> String {
    format!("{} is {}\n", text(task, "id"), text(task, "state"))
}

pub(super) fn questions(task: &Value) -> &[Value] {
    members(task, "open_questions")
}

pub(super) fn members<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    at(value, key).as_array().map_or(&[][..], Vec::as_slice)
}

pub(super) fn question_text(question: &Value) -> String {
    let request = at(question, "request");
    let params = at(request, "params");
    let mut out = format!("  question {}: ", cleaned(text(question, "key")));
    let message = at(params, "message").as_str();
    let method = at(request, "method").as_str().unwrap_or_default();
    let _ = writeln!(out, "{}", short(message.unwrap_or(method)));
    if let Some(link) = at(params, "url").as_str() {
        let _ = writeln!(out, "    its link: {}", cleaned(link));
    }
    for said in members(params, "messages") {
        let said_by = cleaned(text(said, "role"));
        let words = at(at(said, "content"), "text").as_str();
        let _ = writeln!(
            out,
            "    {said_by}: {}",
            short(words.unwrap_or("(no text)"))
        );
    }
    let answer = match method {
        "sampling/createMessage" => SAMPLED.to_owned(),
        "roots/list" => ROOTS.to_owned(),
        _ if !at(params, "requestedSchema").is_null() => at(params, "requestedSchema").to_string(),
        _ => return out,
    };
    let _ = writeln!(out, "    its answer: {answer}");
    out
}

/// The form of an answer to `sampling/createMessage`.
const SAMPLED: &str =
    r#"{"role": "assistant", "model": "..", "content": {"type": "text", "text": ".."}}"#;

/// The form of an answer to `roots/list`.
const ROOTS: &str = r#"{"roots": [{"uri": "file:///.."}]}"#;

/// A member of an object; `null` if there is none.
pub(super) fn at<'v>(value: &'v Value, key: &str) -> &'v Value {
    value.get(key).unwrap_or(&Value::Null)
}

pub(super) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Whole seconds, minutes, hours or days.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_says_what_an_answer_looks_like() {
        let text = |method: &str, params: Value| {
            let request = json!({"method": method, "params": params});
            question_text(&json!({"key": "q", "request": request}))
        };
        let link = text(
            "elicitation/create",
            json!({"message": "Pay", "url": "https://pay.example/1"}),
        );
        assert_eq!(
            link,
            "  question q: Pay\n    its link: https://pay.example/1\n"
        );
        let said = json!({"role": "user", "content": {"type": "text", "text": "Sum it up"}});
        assert_eq!(
            text("sampling/createMessage", json!({"messages": [said]})),
            format!(
                "  question q: sampling/createMessage\n    user: Sum it up\n    its answer: {SAMPLED}\n"
            )
        );
        assert!(text("roots/list", json!({})).ends_with(&format!("its answer: {ROOTS}\n")));
    }

    #[test]
    fn progress_is_a_number_as_people_write_it() {
        for (progress, shown) in [(json!(5.0), "5"), (json!(5), "5"), (json!(2.5), "2.5")] {
            assert_eq!(number(&progress), shown);
        }
    }

    #[test]
    fn a_list_says_who_cancelled_unless_it_was_the_client() {
        let remarks = |by: Value| {
            let mut task = json!({"state": "cancelled", "outcome": "cancelled"});
            let members = by.as_object().unwrap().clone();
            task.as_object_mut().unwrap().extend(members);
            remarks(&task)
        };
        assert_eq!(remarks(json!({})), "");
        assert_eq!(remarks(json!({"cancelled_by": "client"})), "");
        assert_eq!(
            remarks(json!({"cancelled_by": "departure"})),
            "its client went away"
        );
        assert_eq!(
            remarks(json!({"cancelled_by": "operator"})),
            "by an operator"
        );
        let by_ada = json!({"cancelled_by": "operator", "operator": "ada\u{1b}"});
        assert_eq!(remarks(by_ada), "by ada\u{fffd}");
    }

    #[test]
    fn a_list_is_a_table_with_counts() {
        let task = json!({
            "id": "0a1b2c3d-0000", "state": "failed", "tool": "bu\u{1b}ild", "seconds": 130,
            "replica": "web-0", "caller": "11223344", "reason": "owner_lost", "effect": "unknown",
            "outcome": "failed", "announced": true, "questions": 0,
        });
        let page = json!({"tasks": [task], "counts": {"failed": 1}, "fail_if_lost": 2, "total": 1, "partial": false});
        assert_eq!(
            listed(&page),
            "  id        state   tool    took  ended  replica  caller    remarks\n  \
               0a1b2c3d  failed  bu\u{fffd}ild  2m           web-0    11223344  owner_lost, effect unknown\n\n  \
               1 failed\n  2 would fail if their replica were lost\n"
        );
    }
}
