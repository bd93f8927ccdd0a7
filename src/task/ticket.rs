//! What a client without Tasks sees of a task: a ticket and how to follow it, as results of tools.
//!
//! The texts are read by models, so each says which tool to call next.

use std::fmt::Write as _;
use std::sync::Arc;

use super::state::{Status, Task};
use super::view;
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::Era;

/// The tools by which a ticket is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    Status,
    Result,
    Cancel,
    Answer,
}

impl Tool {
    pub const ALL: [Self; 4] = [Self::Status, Self::Result, Self::Cancel, Self::Answer];

    /// Its name, where the server has no tool of that name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Status => "task_status",
            Self::Result => "task_result",
            Self::Cancel => "task_cancel",
            Self::Answer => "task_answer",
        }
    }
}

/// What the tools are called for one caller.
#[derive(Debug, Clone)]
pub struct Names {
    prefix: Arc<str>,
}

impl Names {
    /// Without a prefix where none of the plain names is taken, else with it. `None`: those are
    /// taken, too.
    pub fn free(prefix: &Arc<str>, is_taken: impl Fn(&str) -> bool) -> Option<Self> {
        let plain = Self { prefix: "".into() };
        let prefixed = Self {
            prefix: Arc::clone(prefix),
        };
        [plain, prefixed]
            .into_iter()
            .find(|names| !Tool::ALL.into_iter().any(|tool| is_taken(&names.of(tool))))
    }

    pub fn of(&self, tool: Tool) -> String {
        [&self.prefix, tool.word()].concat()
    }

    pub fn tool(&self, name: &str) -> Option<Tool> {
        let word = name.strip_prefix(&*self.prefix)?;
        Tool::ALL.into_iter().find(|tool| tool.word() == word)
    }
}

/// How a call is answered that became a task for a client without Tasks.
#[derive(Debug, Clone)]
pub struct Ticket {
    pub names: Names,
    /// Whose words the client speaks.
    pub face: Era,
    /// The tool has an output schema, which nothing of ours fits.
    pub has_output_schema: bool,
}

impl Ticket {
    /// The answer to the call. Clients check what is structured against the tool's output schema,
    /// and miss it where there is none; only of an error they want nothing.
    pub fn issued(&self, task: &Task) -> String {
        let status = self.names.of(Tool::Status);
        let what_for = match task.status() {
            Status::InputRequired => "see what is asked",
            Status::Working | Status::Completed | Status::Failed | Status::Cancelled => {
                "wait for it"
            }
        };
        let text = format!(
            "{}. Ticket {}. Call {status} with this ticket to {what_for}.",
            sentence(task),
            task.id
        );
        if self.has_output_schema {
            return said(self.face, &text, None, IsError::Yes);
        }
        let structured = structured(task, Some(&status)).end();
        said(self.face, &text, Some(&structured), IsError::No)
    }
}

/// How the task stands, and what to do next.
pub fn status(names: &Names, face: Era, task: &Task) -> String {
    let mut text = sentence(task).to_owned();
    if let Some(message) = &task.status_message {
        let _ = write!(text, ": {message}");
    }
    text.push('.');
    let next = match task.status() {
        Status::Working => Some(Tool::Status),
        Status::InputRequired => Some(Tool::Answer),
        Status::Completed | Status::Failed => Some(Tool::Result),
        Status::Cancelled => None,
    };
    let next = next.map(|tool| (tool, names.of(tool)));
    if let Some((tool, name)) = &next {
        let _ = match tool {
            Tool::Status => write!(text, " Call {name} with this ticket again to wait for it."),
            Tool::Result => write!(text, " Call {name} with this ticket."),
            Tool::Answer => write!(text, " Answer with {name}, by key:"),
            Tool::Cancel => Ok(()),
        };
    }
    for (question, request) in task.open_questions() {
        let request = Object::parse(request.get()).unwrap_or_default();
        let method = request.get_str("method").unwrap_or_default();
        let params = request.get("params").map_or("{}", |params| params.get());
        let _ = write!(text, "\n{} ({method}): {params}", question.key);
    }
    let mut out = structured(task, next.as_ref().map(|(_, name)| &**name));
    if let Some(message) = &task.status_message {
        out.str("statusMessage", message);
    }
    let progress = task.progress.as_ref();
    if let Some(json) = progress.and_then(|p| serde_json::to_string(p).ok()) {
        out.raw("progress", &json);
    }
    if let Some(questions) = view::input_requests(task).filter(|_| !task.is_ended()) {
        out.raw("questions", &questions);
    }
    said(face, &text, Some(&out.end()), IsError::No)
}

/// What went wrong with a call of one of the tools, for the model.
pub fn refusal(face: Era, text: &str) -> String {
    said(face, text, None, IsError::Yes)
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

fn structured(task: &Task, next: Option<&str>) -> Writer {
    let mut out = Writer::object();
    out.str("ticket", &task.id.to_string());
    out.str("state", task.status().word());
    if let Some(next) = next {
        out.str("next", next);
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IsError {
    No,
    Yes,
}

/// A `CallToolResult`.
fn said(face: Era, text: &str, structured: Option<&str>, is_error: IsError) -> String {
    let mut content = Writer::with_capacity(text.len() + 48);
    content.str("type", "text").str("text", text);
    let mut out = Writer::with_capacity(text.len() + 256);
    if face == Era::Modern {
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
        let names = |taken: &[&str]| Names::free(&"our_".into(), |name| taken.contains(&name));
        let plain = names(&["other"]).unwrap();
        assert_eq!(plain.tool("task_status"), Some(Tool::Status));
        assert_eq!(plain.tool("our_task_status"), None);
        let prefixed = names(&["task_answer"]).unwrap();
        assert_eq!(prefixed.tool("task_status"), None);
        assert_eq!(prefixed.tool("our_task_status"), Some(Tool::Status));
        assert_eq!(prefixed.tool("our_task_statu"), None);
        assert!(names(&["task_answer", "our_task_result"]).is_none());
    }
}
