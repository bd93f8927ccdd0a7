//! The event of the MCP Events extension that raincheck offers: a task has ended, or waits for an answer. Pure.
//!
//! An event is read from the record of its task, so that every replica sends the same events, and nothing is written
//! for them. A state that was left before a client looked is not sent.

use super::digest::Digest;
use super::id::TaskId;
use super::state::{Status, Task};
use crate::base::utc::rfc3339;
use crate::mcp::json::{Writer, quote};

pub mod position;
pub mod replay;
pub mod subscriptions;

/// The name of the event. Webhooks of `[[notify]]` have the same name for the same thing.
pub const NAME: &str = "raincheck.task.updated";

/// The header that names the subscription in each message to a receiver that a client chose.
pub const SUBSCRIPTION_ID: &str = "x-mcp-subscription-id";

const DESCRIPTION: &str = "A task of yours has ended, or waits for your answer to a question.";

const INPUT_SCHEMA: &str = r#"{"type":"object","properties":{"taskId":{"type":"string","description":"Only the events of this task."},"tool":{"type":"string","description":"Only the events of calls of this tool."}},"additionalProperties":false}"#;

const PAYLOAD_SCHEMA: &str = r#"{"type":"object","properties":{"taskId":{"type":"string","description":"For tasks/get, which has the result or the question."},"tool":{"type":"string"},"status":{"type":"string","enum":["input_required","completed","failed","cancelled"]},"statusMessage":{"type":"string"},"createdAt":{"type":"string","format":"date-time"},"lastUpdatedAt":{"type":"string","format":"date-time"}},"required":["taskId","tool","status","createdAt","lastUpdatedAt"]}"#;

/// Returns the description of the event in `events/list`. `delivery`: the modes in which it is delivered.
pub fn definition(delivery: &[&str]) -> String {
    let delivery: Vec<String> = delivery.iter().map(|mode| quote(mode)).collect();
    let mut out = Writer::with_capacity(1024);
    out.str("name", NAME)
        .str("description", DESCRIPTION)
        .raw("delivery", &format!("[{}]", delivery.join(",")))
        .raw("inputSchema", INPUT_SCHEMA)
        .raw("payloadSchema", PAYLOAD_SCHEMA);
    out.end()
}

/// The most characters of a status message in an event. The record of a task may have a long one.
const MESSAGE_CHARS_MAX: usize = 1_000;

/// The name of one event of one task, and its time. Both stay as they are for as long as the task is in that state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventMark {
    pub at_ms: u64,
    pub key: u64,
}

impl EventMark {
    /// `None`: there is no event for the state that the task is in.
    pub fn of(task: &Task) -> Option<Self> {
        let at_ms = match task.status() {
            Status::Working => return None,
            // The time of the last change also moves with progress.
            Status::InputRequired => task.questions.last()?.asked_ms,
            Status::Completed | Status::Failed | Status::Cancelled => task.updated_ms,
        };
        let id = task.id.to_string();
        // The number of questions keeps two questions of one task apart.
        let asked = task.questions.len().to_string();
        let digest = Digest::of(&["event", &id, task.status().word(), &asked]);
        let (half, _) = digest
            .as_bytes()
            .split_first_chunk()
            .unwrap_or((&[0; 8], &[]));
        let key = u64::from_be_bytes(*half);
        Some(Self { at_ms, key })
    }
}

/// The id of the event, the same on each way to a client.
pub fn event_id(mark: EventMark) -> String {
    format!("evt_{:016x}", mark.key)
}

/// The event as clients get it by poll and by stream, without its cursor and without `_meta`.
pub fn occurrence(task: &Task, mark: EventMark) -> String {
    occurrence_at(task, mark, None)
}

/// The event, with the cursor of a subscription.
pub fn occurrence_at(task: &Task, mark: EventMark, cursor: Option<&str>) -> String {
    let mut data = Writer::with_capacity(256);
    data.str("taskId", task.id.text(&mut TaskId::text_buffer()))
        .str("tool", &task.name)
        .str("status", task.status().word());
    if let Some(message) = &task.status_message {
        let end = message.char_indices().nth(MESSAGE_CHARS_MAX);
        let cut = end.and_then(|(end, _)| message.get(..end));
        data.str("statusMessage", cut.unwrap_or(message));
    }
    data.str("createdAt", &rfc3339(task.created_ms))
        .str("lastUpdatedAt", &rfc3339(task.updated_ms));
    let mut out = Writer::with_capacity(512);
    out.str("eventId", &event_id(mark))
        .str("name", NAME)
        .str("timestamp", &rfc3339(mark.at_ms))
        .raw("data", &data.end());
    if let Some(cursor) = cursor {
        out.str("cursor", cursor);
    }
    out.end()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::json::raw;
    use crate::task::machine::tests::task;
    use crate::task::state::{Leg, Outcome, Payload};

    #[test]
    fn an_end_is_told_without_its_result_and_is_one_event() {
        let mut task = task(Leg::Sent(1), true);
        assert_eq!(
            EventMark::of(&task),
            None,
            "nothing is told of a task that works"
        );
        let result = r#"{"content":[{"type":"text","text":"private"}]}"#;
        let result = raw(result.into()).unwrap();
        task.outcome = Some(Outcome::Completed(Payload::Inline(result)));
        task.status_message = Some("done".into());
        let mark = EventMark::of(&task).unwrap();
        let text = occurrence(&task, mark);
        assert!(!text.contains("private"));
        let said: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(said["eventId"], format!("evt_{:016x}", mark.key));
        assert_eq!(said["data"]["status"], "completed");
        assert_eq!(said["data"]["taskId"], task.id.to_string());
        assert_eq!(said["data"]["statusMessage"], "done");
        task.status_message = Some("\u{e9}".repeat(5_000).into());
        let said: Value = serde_json::from_str(&occurrence(&task, mark)).unwrap();
        let message = said["data"]["statusMessage"].as_str().unwrap();
        assert_eq!(message, "\u{e9}".repeat(MESSAGE_CHARS_MAX));
        let mut other = task;
        other.outcome = Some(Outcome::Cancelled);
        assert_ne!(EventMark::of(&other).unwrap().key, mark.key);
    }

    #[test]
    fn the_definition_is_an_object_with_both_schemas() {
        let said: Value = serde_json::from_str(&definition(&["poll", "push"])).unwrap();
        assert_eq!(said["delivery"], json!(["poll", "push"]));
        assert_eq!(said["inputSchema"]["type"], "object");
        assert_eq!(said["payloadSchema"]["type"], "object");
    }
}
