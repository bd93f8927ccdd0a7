//! What a client of revision 2025-11-25 sees of a task: the record in the words of its `Task`.
//!
//! The status is the extension's, so that both dialects tell one story: a tool that says `isError`
//! has completed. The old text calls that failed, but clients that hear `failed` do not fetch the
//! result, and the tool's words would be lost on them.

use super::state::Task;
use super::view::{poll_interval_ms, rfc3339};
use crate::mcp::json::Writer;

/// The bare `Task`: the result of `tasks/get` and `tasks/cancel`, an entry of `tasks/list`, and the
/// params of `notifications/tasks/status`.
pub fn task(task: &Task, now_ms: u64) -> String {
    let mut out = Writer::with_capacity(320);
    out.str("taskId", &task.id.to_string());
    out.str("status", task.status().word());
    if let Some(message) = &task.status_message {
        out.str("statusMessage", message);
    }
    out.str("createdAt", &rfc3339(task.created_ms));
    out.str("lastUpdatedAt", &rfc3339(task.updated_ms));
    out.number("ttl", task.ttl_ms);
    out.number("pollInterval", poll_interval_ms(task, now_ms));
    out.end()
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
