//! The times that a task keeps for operators. No rule reads them.

use crate::task::state::{Leg, Task};

/// Keeps the times that operators see at the task's end: when the call was first sent, and the time that it waited
/// for its client.
pub(super) fn keep(before: &Task, next: &mut Task, now_ms: u64) {
    let was_sent = !matches!(next.leg, Leg::Queued);
    if was_sent && next.sent_ms.is_none() {
        next.sent_ms = Some(now_ms);
    }
    // Questions that are open at the same time count once: from the first until none is open.
    let first_asked = before.open_questions().map(|(q, _)| q.asked_ms).min();
    if let Some(asked_ms) = first_asked
        && next.open_questions().next().is_none()
    {
        next.input_wait_ms += now_ms.saturating_sub(asked_ms);
    }
    let still_open = |key: &str| {
        next.open_questions()
            .any(|(question, _)| &*question.key == key)
    };
    let answered: Vec<&str> = before
        .open_questions()
        .map(|(question, _)| &*question.key)
        .filter(|key| !still_open(key))
        .collect();
    for question in &mut next.questions {
        if answered.contains(&&*question.key) {
            question.answered_ms = Some(now_ms);
        }
    }
}
