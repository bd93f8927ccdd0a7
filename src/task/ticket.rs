//! The view of a task for a client without Tasks: a ticket, and the tools to follow it, as results of tools.
//!
//! Models read the texts, so each text names the tool to call next.

use std::fmt::Write as _;
use std::sync::Arc;

use super::state::{Status, Task};
use super::view;
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;

/// The tools by which a ticket is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompanionTool {
    Status,
    Result,
    Cancel,
    Answer,
}

impl CompanionTool {
    pub const ALL: [Self; 4] = [Self::Status, Self::Result, Self::Cancel, Self::Answer];

    /// The name of the tool, if the server has no tool of that name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "task_status",
            Self::Result => "task_result",
            Self::Cancel => "task_cancel",
            Self::Answer => "task_answer",
        }
    }
}

/// The names of the tools for one caller.
#[derive(Debug, Clone)]
pub struct CompanionNames {
    prefix: Arc<str>,
}

impl CompanionNames {
    /// The plain names if none of them is taken, or else the names with the prefix. `None`: a prefixed name
    /// is taken, too.
    pub fn free(prefix: &Arc<str>, is_taken: impl Fn(&str) -> bool) -> Option<Self> {
        let plain = Self { prefix: "".into() };
        let prefixed = Self {
            prefix: Arc::clone(prefix),
        };
        [plain, prefixed].into_iter().find(|names| {
            !CompanionTool::ALL
                .into_iter()
                .any(|tool| is_taken(&names.of(tool)))
        })
    }

    pub fn of(&self, tool: CompanionTool) -> String {
        [&self.prefix, tool.word()].concat()
    }

    pub fn tool(&self, name: &str) -> Option<CompanionTool> {
        let word = name.strip_prefix(&*self.prefix)?;
        CompanionTool::ALL
            .into_iter()
            .find(|tool| tool.word() == word)
    }
}

/// The answer to a call that became a task for a client without Tasks.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub names: CompanionNames,
    /// The era of the client.
    pub client_era: Era,
    /// The client takes an event on a stream, however large it is.
    pub takes_large_events: bool,
}

/// The circumstances of one answer about a ticket.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now_ms: u64,
    /// The number of this answer about the ticket. The client repeats the number in its next call, because
    /// some clients stop a model that makes the same call several times.
    pub round: u64,
    /// `true` if the answer contains the last messages of the server: they take room in the window of a model.
    pub with_messages: bool,
}

impl Ticket {
    /// The answer to the call.
    pub fn issued(&self, task: &Task, now_ms: u64) -> String {
        status(
            &self.names,
            self.client_era,
            task,
            Moment {
                now_ms,
                round: 1,
                with_messages: false,
            },
        )
    }
}

/// The members that name a task to a model: the ticket, the state, and the call that the ticket stands for.
pub(super) fn named(task: &Task) -> Writer {
    let mut out = Writer::object();
    out.str("ticket", &task.id.to_string());
    out.str("state", task.status().word());
    out.str("tool", &task.name);
    if let Some(terms) = &task.ticket {
        out.str("arguments", terms.arguments());
    }
    out
}

/// Returns the state of the task, and the next action. Some clients show a model the text, others only the structured
/// content, so both contain everything.
pub fn status(names: &CompanionNames, client_era: Era, task: &Task, at: Moment) -> String {
    let next = match task.status() {
        Status::Working | Status::Completed | Status::Failed => Some(CompanionTool::Result),
        Status::InputRequired => Some(CompanionTool::Answer),
        Status::Cancelled => None,
    };
    let next = next.map(|tool| names.of(tool));
    let age_s = at.now_ms.saturating_sub(task.created_ms) / 1000;
    let mut text = model_text(task, next.as_deref(), (age_s, at.round));
    let mut out = named(task);
    if let Some(next) = &next {
        out.str("next", next);
    }
    out.number("round", at.round);
    out.number("secondsSinceTicket", age_s);
    out.str("message", &text);
    if let Some(message) = &task.status_message {
        out.str("statusMessage", message);
    }
    let progress = task.progress.as_ref();
    if let Some(json) = progress.and_then(|p| serde_json::to_string(p).ok()) {
        out.raw("progress", &json);
    }
    // Added behind `message`: clients that show only the structured content have a member for them.
    if at.with_messages && !task.messages.is_empty() {
        text.push_str("\nThe last messages of the server, the newest last:");
        let told = task.messages.iter().map(|message| {
            let ago_s = at.now_ms.saturating_sub(message.at_ms) / 1000;
            let _ = write!(text, "\n{ago_s} s ago: {}", message.text);
            let mut out = Writer::object();
            out.number("secondsAgo", ago_s).str("text", &message.text);
            out.end()
        });
        let told: Vec<_> = told.collect();
        out.raw("messages", &format!("[{}]", told.join(",")));
    }
    if let Some(questions) = view::input_requests(task).filter(|_| !task.is_ended()) {
        out.raw("questions", &questions);
    }
    for (question, request) in task.open_questions() {
        let request = Object::parse(request.get()).unwrap_or_default();
        let method = request.get_str("method").unwrap_or_default();
        let params = request.get("params").map_or("{}", |params| params.get());
        let _ = write!(text, "\n{} ({method}): {params}", question.key);
    }
    tool_result(client_era, &text, Some(&out.end()), IsError::No)
}

/// The text for a model: the state, the ticket and the next call.
fn model_text(task: &Task, next: Option<&str>, (age_s, round): (u64, u64)) -> String {
    let mut text = sentence(task).to_owned();
    if let Some(message) = &task.status_message {
        let _ = write!(text, ": {message}");
    }
    text.push('.');
    // A model that gets no result yet may else make the same call again.
    if task.status() == Status::Working {
        let _ = write!(
            text,
            " The call goes on by itself, for {age_s} s since its ticket: do not make it again."
        );
    }
    let _ = write!(text, " Ticket {} for {}.", task.id, call_of(task));
    let Some(next) = next else { return text };
    let _ = match task.status() {
        Status::Working => write!(
            text,
            " Call {next} with this ticket and round {round}: it waits for the result."
        ),
        Status::InputRequired => write!(text, " Answer with {next}, by key."),
        Status::Completed | Status::Failed | Status::Cancelled => {
            write!(text, " Call {next} with this ticket.")
        }
    };
    text
}

/// Returns the tool of the call, and the beginning of its arguments. A model that forgot why it made the call
/// recognises it.
pub(super) fn call_of(task: &Task) -> String {
    match &task.ticket {
        Some(terms) => format!("{} {}", task.name, terms.arguments()),
        None => task.name.to_string(),
    }
}

/// Returns the error of a call of a companion tool, as a result for a model.
pub fn refusal(client_era: Era, text: &str) -> String {
    tool_result(client_era, text, None, IsError::Yes)
}

fn sentence(task: &Task) -> &'static str {
    match task.status() {
        Status::Working => "Still running",
        Status::InputRequired => "Waiting for an answer",
        Status::Completed => "Completed",
        Status::Failed => "Failed",
        Status::Cancelled => "Cancelled",
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IsError {
    No,
    Yes,
}

/// A `CallToolResult`.
pub(super) fn tool_result(
    client_era: Era,
    text: &str,
    structured: Option<&str>,
    is_error: IsError,
) -> String {
    let mut content = Writer::with_capacity(text.len() + 48);
    content.str("type", "text").str("text", text);
    let mut out = Writer::with_capacity(text.len() + 256);
    if client_era == Era::Modern {
        out.str("resultType", "complete");
    }
    out.raw("content", &format!("[{}]", content.end()));
    if let Some(structured) = structured {
        out.raw("structuredContent", structured);
    }
    if is_error == IsError::Yes {
        out.raw("isError", "true");
    }
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_clash() {
        let names =
            |taken: &[&str]| CompanionNames::free(&"our_".into(), |name| taken.contains(&name));
        let plain = names(&["other"]).unwrap();
        assert_eq!(plain.tool("task_status"), Some(CompanionTool::Status));
        assert_eq!(plain.tool("our_task_status"), None);
        let prefixed = names(&["task_answer"]).unwrap();
        assert_eq!(prefixed.tool("task_status"), None);
        assert_eq!(
            prefixed.tool("our_task_status"),
            Some(CompanionTool::Status)
        );
        assert_eq!(prefixed.tool("our_task_statu"), None);
        assert!(names(&["task_answer", "our_task_result"]).is_none());
    }
}
