//! A task as a client of revision 2025-11-25 sees it: the record as that revision's `Task`.
//!
//! The status is that of the extension: a call whose result has `isError` is `completed`. Revision 2025-11-25
//! calls such a task `failed`, but clients that see `failed` do not fetch the result, and would miss the
//! tool's text.

use super::id::TaskId;
use super::state::Task;
use crate::base::utc::rfc3339;
use crate::mcp::input;
use crate::mcp::json::Writer;
use crate::mcp::tasks_2025;

/// The JSON-RPC ids of raincheck's questions begin with this.
const QUESTION_IDS: &str = "raincheck/";

/// The bare `Task`: the result of `tasks/get` and `tasks/cancel`, an entry of `tasks/list`, and the
/// params of `notifications/tasks/status`.
pub fn task(task: &Task, poll_interval_ms: u64) -> String {
    let mut out = Writer::with_capacity(320);
    out.str("taskId", &task.id.to_string());
    out.str("status", task.status().word());
    if let Some(message) = &task.status_message {
        out.str("statusMessage", message);
    }
    out.str("createdAt", &rfc3339(task.created_ms));
    out.str("lastUpdatedAt", &rfc3339(task.updated_ms));
    out.number("ttl", task.ttl_ms);
    out.number("pollInterval", poll_interval_ms);
    out.end()
}

/// The open questions of a task, by their keys, as requests to its client.
pub fn questions(task: &Task) -> impl Iterator<Item = (&str, String)> {
    requests(task, Some(task.id.to_string()), None)
}

/// The open questions as requests to a client that waits for the call and knows of no task: only the
/// questions that the declared capabilities allow. `None`: the client may be asked anything.
pub fn questions_of_call<'a>(
    task: &'a Task,
    declared: Option<&'a str>,
) -> impl Iterator<Item = (&'a str, String)> {
    requests(task, None, declared)
}

fn requests<'a>(
    task: &'a Task,
    related: Option<String>,
    declared: Option<&'a str>,
) -> impl Iterator<Item = (&'a str, String)> {
    task.open_questions()
        .filter(move |(_, request)| {
            declared.is_none_or(|declared| input::is_declared(request, declared))
        })
        .filter_map(move |(question, request)| {
            let name = format!("{QUESTION_IDS}{}/{}", task.id, question.key);
            let message = tasks_2025::question(request, &name, related.as_deref())?;
            Some((&*question.key, message))
        })
}

/// The task and the key of the question that has this JSON-RPC id. `None`: raincheck did not make the id.
pub fn question_of(id: &str) -> Option<(TaskId, &str)> {
    let (task, key) = id.strip_prefix(QUESTION_IDS)?.split_once('/')?;
    Some((TaskId::parse(task)?, key))
}

/// A page of `tasks/list`, of tasks as JSON.
pub fn page(tasks: &[String], next_cursor: Option<&str>) -> String {
    let mut out = Writer::with_capacity(tasks.len() * 320 + 64);
    out.raw("tasks", &format!("[{}]", tasks.join(",")));
    if let Some(cursor) = next_cursor {
        out.str("nextCursor", cursor);
    }
    out.end()
}
