//! The entry of one ended task.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::task::cancelled_by::CancelledBy;
use crate::task::id::{Incarnation, TaskId};
use crate::task::state::{Outcome, Payload, Task};

/// The longest name of a tool that the history keeps whole. Clients choose the names that they call.
const TOOL_BYTES_MAX: usize = 256;

/// A task that has ended, as the history keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedTask<'a> {
    pub id: TaskId,
    pub group: EndGroup<'a>,
    pub times: EndTimes,
}

/// The facts that many ended tasks have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EndGroup<'a> {
    #[serde(rename = "t", borrow)]
    pub tool: Cow<'a, str>,
    /// The short form of the caller's hash.
    #[serde(rename = "c", borrow)]
    pub caller: Cow<'a, str>,
    /// The name that operators know the caller by. Empty: it has none.
    #[serde(rename = "l", borrow, default, skip_serializing_if = "is_empty")]
    pub label: Cow<'a, str>,
    /// The replica that carried the call to its end. Empty: none did.
    #[serde(rename = "r", borrow, default, skip_serializing_if = "is_empty")]
    pub replica: Cow<'a, str>,
    /// The end in one word: see [`Outcome::words`].
    #[serde(rename = "o", borrow)]
    pub outcome: Cow<'a, str>,
    /// The reason for which raincheck itself failed the task. Empty: it did not.
    #[serde(rename = "w", borrow, default, skip_serializing_if = "is_empty")]
    pub reason: Cow<'a, str>,
    /// The known effect of a call that raincheck failed: `none` or `unknown`.
    #[serde(rename = "e", borrow, default, skip_serializing_if = "is_empty")]
    pub effect: Cow<'a, str>,
    /// The code of the error that the server answered with.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    /// The party that cancelled the task. `None`: it was not cancelled, or an earlier version ended it.
    #[serde(
        rename = "b",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "CancelledBy::known"
    )]
    pub cancelled_by: Option<CancelledBy>,
}

/// The facts of one ended task alone. Times are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndTimes {
    /// The Unix time of the end.
    #[serde(rename = "e")]
    pub ended_ms: u64,
    /// The time that the call took.
    #[serde(rename = "d")]
    pub took_ms: u64,
    /// The time from the creation of the task to its end, where that is another.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub lived_ms: Option<u64>,
    /// The time for which the call waited for its turn. `None`: it was never sent.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// The time for which questions were open.
    #[serde(rename = "i", default, skip_serializing_if = "is_zero")]
    pub input_ms: u64,
    #[serde(rename = "s", default, skip_serializing_if = "is_zero")]
    pub result_bytes: u64,
    /// The number of times that the call was run again.
    #[serde(rename = "a", default, skip_serializing_if = "is_zero")]
    pub attempts: u64,
    /// `true` if no client was told of the task: a call that its client waited for.
    #[serde(rename = "u", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unannounced: bool,
    /// The id of the job that the call started at the server.
    #[serde(rename = "j", default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<str>>,
    /// The task that the request was about.
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
}

impl EndGroup<'_> {
    /// Returns `true` for a failure: somebody should look at it, and acknowledge that.
    pub fn is_failure(&self) -> bool {
        self.outcome == "failed"
    }

    fn into_owned(self) -> EndGroup<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        EndGroup {
            tool: owned(self.tool),
            caller: owned(self.caller),
            label: owned(self.label),
            replica: owned(self.replica),
            outcome: owned(self.outcome),
            reason: owned(self.reason),
            effect: owned(self.effect),
            code: self.code,
            cancelled_by: self.cancelled_by,
        }
    }
}

impl<'a> EndedTask<'a> {
    /// Returns the entry of a task. `None`: it has not ended.
    pub fn of(task: &'a Task) -> Option<Self> {
        let outcome = task.outcome.as_ref()?;
        let (word, reason, effect) = outcome.words();
        let ended_ms = task.updated_ms;
        let name_end = task.name.floor_char_boundary(TOOL_BYTES_MAX);
        let took_ms = task.call_took_ms(ended_ms);
        let lived_ms = ended_ms.saturating_sub(task.created_ms);
        let result_bytes = match outcome {
            Outcome::Completed(Payload::Inline(result)) => result.get().len() as u64,
            Outcome::Completed(Payload::Kept { bytes, .. }) => *bytes,
            Outcome::Failed(_) | Outcome::Cancelled => 0,
        };
        Some(Self {
            id: task.id,
            group: EndGroup {
                tool: Cow::Borrowed(task.name.get(..name_end).unwrap_or_default()),
                caller: task.caller.short().into(),
                label: Cow::Borrowed(task.label.as_deref().unwrap_or_default()),
                replica: Cow::Borrowed(task.owner.as_ref().map_or("", Incarnation::replica)),
                outcome: word.into(),
                reason: reason.into(),
                effect: effect.into(),
                code: outcome.server_code(),
                cancelled_by: task.cancelled_by.clone(),
            },
            times: EndTimes {
                ended_ms,
                took_ms,
                lived_ms: Some(lived_ms).filter(|lived_ms| *lived_ms != took_ms),
                queued_ms: task
                    .sent_ms
                    .map(|sent_ms| sent_ms.saturating_sub(task.created_ms)),
                input_ms: task.input_wait_ms,
                result_bytes,
                attempts: task.attempts.into(),
                is_unannounced: !task.announced,
                job: task.job.clone(),
                parent: task.related.first().copied(),
            },
        })
    }

    /// The entry without its id, which a store keeps beside it.
    pub fn encode(&self) -> Vec<u8> {
        // Neither has a number or a key that JSON does not have.
        serde_json::to_vec(&(&self.group, &self.times)).unwrap_or_default()
    }

    /// Reads an entry. `None`: raincheck did not write it.
    pub fn decode(id: TaskId, entry: &[u8]) -> Option<EndedTask<'static>> {
        let (group, times): (EndGroup<'_>, _) = serde_json::from_slice(entry).ok()?;
        Some(EndedTask { id, group, times }.into_owned())
    }

    /// The same entry without what it borrows.
    pub fn into_owned(self) -> EndedTask<'static> {
        EndedTask {
            id: self.id,
            group: self.group.into_owned(),
            times: self.times,
        }
    }

    /// The place in the order of the history: the end, then the id.
    pub fn place(&self) -> (u64, TaskId) {
        (self.times.ended_ms, self.id)
    }

    pub fn began_ms(&self) -> u64 {
        self.times.ended_ms.saturating_sub(self.times.took_ms)
    }

    pub fn created_ms(&self) -> u64 {
        let lived_ms = self.times.lived_ms.unwrap_or(self.times.took_ms);
        self.times.ended_ms.saturating_sub(lived_ms)
    }
}

#[expect(clippy::ptr_arg, reason = "serde's signature")]
fn is_empty(text: &Cow<'_, str>) -> bool {
    text.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::error::{Failure, Reason, SideEffect};
    use crate::task::machine::tests::task;
    use crate::task::state::Leg;

    #[test]
    fn an_entry_says_what_became_of_a_task_and_nothing_of_what_was_said() {
        let failure = Failure::new(Reason::OwnerLost, SideEffect::Unknown);
        let failed = Task {
            label: Some("alice".into()),
            status_message: Some("s3cret".into()),
            outcome: Some(Outcome::Failed(failure.to_error().to_raw())),
            ..task(Leg::Sent(1), true)
        };
        let ended = EndedTask::of(&failed).unwrap();
        assert_eq!(ended.group.outcome, "failed");
        assert_eq!(
            (&*ended.group.reason, &*ended.group.effect),
            ("owner_lost", "unknown")
        );
        assert_eq!(ended.created_ms(), failed.created_ms);
        assert_eq!(ended.began_ms(), failed.call_began_ms());
        let entry = ended.encode();
        assert!(!String::from_utf8_lossy(&entry).contains("s3cret"));
        assert_eq!(EndedTask::decode(failed.id, &entry), Some(ended));
        assert_eq!(EndedTask::of(&task(Leg::Sent(1), true)), None);
        let cancelled = Task {
            outcome: Some(Outcome::Cancelled),
            cancelled_by: Some(CancelledBy::Operator(Some("ada".into()))),
            ..failed
        };
        let ended = EndedTask::of(&cancelled).unwrap();
        assert_eq!(ended.group.cancelled_by, cancelled.cancelled_by);
        assert_eq!(EndedTask::decode(ended.id, &ended.encode()), Some(ended));
        assert_eq!(EndedTask::decode(failed.id, b"{}"), None);
    }
}
