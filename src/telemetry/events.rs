//! The changes of tasks at this replica, as they happen, for operators who follow them. Without a follower nothing is
//! made.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::seconds::seconds;
use crate::base::printable::printable_json;
use crate::base::utc::rfc3339;
use crate::task::change::TaskChange;
use crate::task::state::Task;

/// The events that a slow reader may be behind. A reader that is further behind is cut.
const BEHIND_MAX: usize = 1024;

static EVENTS: LazyLock<broadcast::Sender<TaskEventText>> =
    LazyLock::new(|| broadcast::Sender::new(BEHIND_MAX));

/// One event, made once for all readers.
#[derive(Debug, Clone)]
pub struct TaskEventText {
    /// The name of the change.
    pub word: &'static str,
    /// The task as JSON, without arguments and results.
    pub json: Arc<str>,
}

/// The events from now on.
pub fn subscribe() -> broadcast::Receiver<TaskEventText> {
    EVENTS.subscribe()
}

/// Sends a change to the operators who follow.
pub(super) fn happened(change: TaskChange, task: &Task, ending: Option<[&str; 3]>) {
    if EVENTS.receiver_count() == 0 {
        return;
    }
    let event = TaskEventText {
        word: word(change),
        json: printable_json(&text(change, task, ending).to_string()).into(),
    };
    // Without a reader there is nobody to tell.
    let _ = EVENTS.send(event);
}

fn word(change: TaskChange) -> &'static str {
    match change {
        TaskChange::Created => "created",
        TaskChange::Announced => "announced",
        TaskChange::Dispatched => "dispatched",
        TaskChange::Asked(_) => "asked",
        TaskChange::Answered(..) => "answered",
        TaskChange::Reminded => "reminded",
        TaskChange::Progressed => "progress",
        TaskChange::Released => "released",
        TaskChange::TakenOver => "taken_over",
        TaskChange::Ended => "ended",
    }
}

fn text(change: TaskChange, task: &Task, ending: Option<[&str; 3]>) -> Value {
    let replica = task.owner.as_ref().map_or("", |owner| owner.replica());
    let mut event = json!({
        "at": rfc3339(task.updated_ms),
        "event": word(change),
        "id": task.id.to_string(),
        "tool": &*task.name,
        "state": task.status().word(),
        "replica": replica,
        "announced": task.announced,
        "seconds": seconds(task.call_took_ms(task.updated_ms)),
    });
    let Some(members) = event.as_object_mut() else {
        return event;
    };
    if let Some(label) = &task.label {
        members.insert("label".into(), json!(label));
    }
    if let Some(progress) = &task.progress {
        members.insert("progress".into(), json!(progress));
    }
    if let TaskChange::Asked(number) | TaskChange::Answered(number, _) = change {
        members.insert("questions".into(), json!(number));
    }
    if let Some([outcome, reason, effect]) = ending {
        members.insert("outcome".into(), json!(outcome));
        for (key, word) in [("reason", reason), ("effect", effect)] {
            if !word.is_empty() {
                members.insert(key.into(), json!(word));
            }
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::machine::tests::task;
    use crate::task::state::Leg;

    #[tokio::test]
    async fn a_reader_gets_what_happens_from_its_beginning_and_a_slow_one_learns_of_its_gap() {
        let task = task(Leg::Sent(1), true);
        happened(TaskChange::Dispatched, &task, None);
        let mut events = subscribe();
        happened(TaskChange::Asked(2), &task, None);
        let ending = ["failed", "deadline", "unknown"];
        happened(TaskChange::Ended, &task, Some(ending));
        let asked = events.recv().await.unwrap();
        assert_eq!(asked.word, "asked");
        assert!(asked.json.contains(r#""questions":2"#), "{}", asked.json);
        let ended = events.recv().await.unwrap();
        assert!(
            ended.json.contains(r#""effect":"unknown""#),
            "{}",
            ended.json
        );
        for _ in 0..=BEHIND_MAX {
            happened(TaskChange::Created, &task, None);
        }
        let behind = events.recv().await;
        assert!(matches!(
            behind,
            Err(broadcast::error::RecvError::Lagged(_))
        ));
    }
}
