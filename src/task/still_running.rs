//! The answer to a client whose clock is about to end. Pure.

use std::fmt::Write as _;

use super::state::Task;
use crate::mcp::error::{RpcError, code};

/// The longest part of the server's last message, in characters.
const MESSAGE_MAX: usize = 200;

const DATA: &str = r#"{"io.raincheck/reason":"still_running","io.raincheck/effect":"unknown"}"#;

/// Returns the error for such a client. Its code and its first words are those of a timeout of the official clients, so a
/// program handles it as the timeout that it replaces. The rest is for a model.
pub fn error(task: &Task) -> RpcError {
    let tool = &task.name;
    let mut text = format!("Request timed out: {tool} is still running");
    if let Some(progress) = &task.progress {
        let _ = write!(text, ", step {}", progress.progress);
        if let Some(total) = progress.total {
            let _ = write!(text, " of {total}");
        }
    }
    if let Some(message) = &task.status_message {
        let message: String = message.chars().take(MESSAGE_MAX).collect();
        let _ = write!(text, " ({message})");
    }
    let _ = write!(
        text,
        ". Call {tool} again with the same arguments to wait for its result"
    );
    RpcError::new(code::REQUEST_TIMEOUT, text).with_data(DATA)
}
