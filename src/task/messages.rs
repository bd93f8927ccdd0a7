//! The last messages of the server about a running call, as its record keeps them. Pure.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::json::{Object, string};

/// The largest number of messages that a record keeps.
const MESSAGES_MAX: usize = 20;

/// The longest text of a message, in characters.
const TEXT_MAX: usize = 200;

/// A progress message, or a log message, of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskMessage {
    pub at_ms: u64,
    pub text: Box<str>,
}

impl TaskMessage {
    pub fn new(at_ms: u64, text: &str) -> Self {
        let mut short: String = text.chars().take(TEXT_MAX).collect();
        if short.len() < text.len() {
            // The mark takes the place of the last character, so that the bound holds.
            short.pop();
            short.push('…');
        }
        let text = short.into();
        Self { at_ms, text }
    }

    /// `params`: of `notifications/message`. `None`: they contain no message.
    pub fn of_log(at_ms: u64, params: &RawValue) -> Option<Self> {
        let params = Object::parse(params.get()).ok()?;
        let data = params.get("data")?;
        let text = string(data).unwrap_or_else(|| data.get().into());
        let level = params.get_str("level").unwrap_or_default();
        Some(Self::new(at_ms, &format!("{level}: {text}")))
    }
}

/// Adds a message behind the others, and drops the first if there are too many. A write that is repeated adds nothing.
pub fn add(messages: &mut Vec<TaskMessage>, message: TaskMessage) {
    if messages.contains(&message) {
        return;
    }
    messages.push(message);
    let first = messages.len().saturating_sub(MESSAGES_MAX);
    messages.drain(..first);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_are_kept_each_cut_between_characters() {
        let mut kept = Vec::new();
        for number in 0..50 {
            add(&mut kept, TaskMessage::new(number, "said"));
        }
        add(&mut kept, TaskMessage::new(49, "said"));
        let at: Vec<_> = kept.iter().map(|message| message.at_ms).collect();
        assert_eq!(at, (30..50).collect::<Vec<_>>());
        let long = TaskMessage::new(0, &"é".repeat(300)).text;
        assert_eq!(long.chars().count(), TEXT_MAX);
        assert!(long.ends_with("é…"));
        assert_eq!(
            *TaskMessage::new(0, &"é".repeat(200)).text,
            *"é".repeat(200)
        );
    }

    #[test]
    fn a_log_message_may_be_any_json() {
        let text = |params: &str| {
            let params = RawValue::from_string(params.to_owned()).unwrap();
            TaskMessage::of_log(1, &params).map(|message| message.text.into_string())
        };
        let said = text(r#"{"level":"error","data":"disk \"full\""}"#);
        assert_eq!(said.unwrap(), r#"error: disk "full""#);
        let said = text(r#"{"level":"info","data":{"step":1}}"#);
        assert_eq!(said.unwrap(), r#"info: {"step":1}"#);
        assert_eq!(text(r#"{"level":"info"}"#), None);
    }
}
