//! The message that a receiver gets. Pure.
//!
//! A body holds no argument, no result, no question and no whole task id: for a client without a credential the id is all
//! that it takes to read the result.

use crate::base::utc::rfc3339;
use crate::mcp::json::Writer;
use crate::task::notices::Notice;
use crate::task::state::{Outcome, Task};
use crate::telemetry::seconds::seconds;

/// The type of every message. The MCP Events extension has the same name for the same thing.
const TYPE: &str = "raincheck.task.updated";

/// Returns the body of a message. Another attempt has the same content, save for the replica, which may have changed.
pub fn body(task: &Task, notice: &Notice) -> String {
    let seconds = seconds(notice.at_ms.saturating_sub(task.call_began_ms()));
    let mut data = Writer::with_capacity(256);
    data.str("task", &task.id.short())
        .str("tool", &task.name)
        .str("state", notice.state.word())
        .number("seconds", seconds);
    // A notice of a question may go out behind the end of its task, and must not contain that end.
    let end = task.outcome.as_ref().filter(|_| notice.is_end());
    let (outcome, reason, effect) = end.map(Outcome::words).unwrap_or_default();
    let replica = task.owner.as_ref().map_or("", |owner| owner.replica());
    for (key, value) in [
        ("outcome", outcome),
        ("reason", reason),
        ("effect", effect),
        ("caller", task.label.as_deref().unwrap_or_default()),
        ("replica", replica),
    ] {
        if !value.is_empty() {
            data.str(key, value);
        }
    }
    if notice.is_reminder {
        data.raw("reminder", "true");
    }
    let mut body = Writer::with_capacity(384);
    body.str("type", TYPE)
        .str("timestamp", &rfc3339(notice.at_ms))
        .raw("data", &data.end());
    body.end()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::mcp::json::raw;
    use crate::task::machine::tests::{NOW, task};
    use crate::task::notices::NoticeState;
    use crate::task::state::{Leg, Outcome, Payload};

    fn told(task: &Task, state: NoticeState) -> Value {
        let notice = Notice {
            number: 1,
            state,
            at_ms: NOW + 1_500,
            is_reminder: false,
        };
        serde_json::from_str(&body(task, &notice)).unwrap()
    }

    #[test]
    fn an_end_is_told_without_result_and_without_the_whole_id() {
        let mut task = task(Leg::Sent(1), true);
        task.label = Some("ada".into());
        let result = r#"{"content":[{"type":"text","text":"private"}],"isError":true}"#;
        task.outcome = Some(Outcome::Completed(Payload::Inline(
            raw(result.into()).unwrap(),
        )));
        let said = told(&task, NoticeState::Completed);
        let expected = json!({
            "type": "raincheck.task.updated",
            "timestamp": "1970-01-01T00:16:41.500Z",
            "data": {"task": "07070707", "tool": "tool", "state": "completed", "outcome": "tool_error",
                "seconds": 1.5, "caller": "ada", "replica": "a"},
        });
        assert_eq!(said, expected);
    }

    #[test]
    fn a_failure_of_raincheck_has_its_reason() {
        let mut task = task(Leg::Sent(1), true);
        let failure = Failure::new(Reason::Deadline, SideEffect::Unknown);
        task.outcome = Some(Outcome::Failed(failure.to_error().to_raw()));
        let said = told(&task, NoticeState::Failed);
        assert_eq!(said["data"]["reason"], "deadline");
        assert_eq!(said["data"]["effect"], "unknown");
        // The question came before the end, and is told as it was.
        let question = told(&task, NoticeState::InputRequired);
        assert_eq!(question["data"].get("outcome"), None);
    }
}
