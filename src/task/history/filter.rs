//! The filters of operators for tasks, whether they run or are in the history.

use super::chunk::ChunkIndex;
use super::entry::{EndGroup, EndedTask};
use crate::base::utc::rfc3339;
use crate::task::id::{Incarnation, TaskId};
use crate::task::state::{Status, Task};
use crate::task::tool_pattern::ToolPattern;

/// Filters, all of which a task must pass. The default is passed by every task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    pub tool: Option<ToolPattern>,
    /// The label of the caller, or the short form of its hash.
    pub caller: Option<String>,
    pub replica: Option<String>,
    /// The beginning of the id, in lower case.
    pub id: Option<String>,
    /// Milliseconds that have passed at least since the call began.
    pub older_than_ms: u64,
    /// The time of the last change, which is that of the end once there is one.
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    pub end: EndFilter,
}

/// Filters that only a task that has ended can pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndFilter {
    pub status: Option<Status>,
    /// A word of [`Outcome::words`](crate::task::state::Outcome::words), as the following two.
    pub outcome: Option<&'static str>,
    pub reason: Option<&'static str>,
    pub effect: Option<&'static str>,
}

/// A time that an operator wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moment {
    /// So many milliseconds ago.
    Ago(u64),
    /// The beginning of a time in UTC, as lists show it.
    At(String),
}

impl Moment {
    /// Returns `true` unless the time is later than `at_ms`.
    fn is_before(&self, at_ms: u64, now_ms: u64) -> bool {
        match self {
            Self::Ago(ago_ms) => now_ms.saturating_sub(at_ms) <= *ago_ms,
            Self::At(text) => rfc3339(at_ms) >= *text,
        }
    }
}

impl EndFilter {
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    pub fn passes(&self, outcome: &str, reason: &str, effect: &str) -> bool {
        let is = |wanted: Option<&str>, word: &str| wanted.is_none_or(|wanted| wanted == word);
        // A tool error is a completed task.
        let state = if outcome == "tool_error" {
            "completed"
        } else {
            outcome
        };
        is(self.status.map(Status::word), state)
            && is(self.outcome, outcome)
            && is(self.reason, reason)
            && is(self.effect, effect)
    }
}

impl TaskFilter {
    /// Returns `true` if a task with a record passes all filters but those of its end.
    pub fn passes_running(&self, task: &Task, now_ms: u64) -> bool {
        let replica = task.owner.as_ref().map_or("", Incarnation::replica);
        self.has_tool(&task.name)
            && (self.caller.is_none()
                || self.has_caller(
                    &task.caller.short(),
                    task.label.as_deref().unwrap_or_default(),
                ))
            && self.has_replica(replica)
            && self.has_id(task.id)
            && self.has_age(task.call_began_ms(), now_ms)
            && self.has_change(task.updated_ms, task.updated_ms, now_ms)
    }

    /// Returns `true` if an entry of this group passes the filters of what is in its group: all of them, or all but those of its
    /// end.
    pub fn passes_group(&self, group: &EndGroup<'_>, is_end_checked: bool) -> bool {
        self.has_tool(&group.tool)
            && self.has_caller(&group.caller, &group.label)
            && self.has_replica(&group.replica)
            && (!is_end_checked
                || self
                    .end
                    .passes(&group.outcome, &group.reason, &group.effect))
    }

    /// Returns `true` if an entry passes all filters, or all but those of its end.
    pub fn passes_ended(&self, entry: &EndedTask<'_>, is_end_checked: bool, now_ms: u64) -> bool {
        self.passes_group(&entry.group, is_end_checked)
            && self.has_id(entry.id)
            && self.has_age(entry.began_ms(), now_ms)
            && self.has_change(entry.times.ended_ms, entry.times.ended_ms, now_ms)
    }

    /// Returns `true` if an entry of this chunk may pass.
    pub fn may_be_in(&self, index: &ChunkIndex<'_>, is_end_checked: bool) -> bool {
        let mut ends = index.ends.iter();
        index.tools.iter().any(|tool| self.has_tool(&tool.0))
            && self
                .caller
                .as_deref()
                .is_none_or(|caller| index.may_have_caller(caller))
            && self
                .replica
                .as_deref()
                .is_none_or(|wanted| index.replicas.iter().any(|replica| replica.0 == wanted))
            && (!is_end_checked
                || ends.any(|[outcome, reason, effect]| {
                    self.end.passes(&outcome.0, &reason.0, &effect.0)
                }))
            && self.id.as_deref().is_none_or(|id| index.may_have_id(id))
    }

    /// Returns `true` if an index can tell that no entry of a chunk passes.
    pub fn is_about_content(&self, is_end_checked: bool) -> bool {
        self.tool.is_some()
            || self.caller.is_some()
            || self.replica.is_some()
            || self.id.is_some()
            || is_end_checked && self.end.is_any()
    }

    /// Returns `true` if a change between these times may pass.
    pub fn has_change(&self, from_ms: u64, to_ms: u64, now_ms: u64) -> bool {
        self.since
            .as_ref()
            .is_none_or(|since| since.is_before(to_ms, now_ms))
            && !self
                .until
                .as_ref()
                .is_some_and(|until| until.is_before(from_ms, now_ms))
    }

    fn has_tool(&self, tool: &str) -> bool {
        self.tool
            .as_ref()
            .is_none_or(|wanted| wanted.is_match(tool))
    }

    fn has_caller(&self, hash: &str, label: &str) -> bool {
        self.caller
            .as_deref()
            .is_none_or(|wanted| wanted == hash || wanted == label)
    }

    fn has_replica(&self, replica: &str) -> bool {
        self.replica
            .as_deref()
            .is_none_or(|wanted| wanted == replica)
    }

    fn has_id(&self, id: TaskId) -> bool {
        self.id
            .as_deref()
            .is_none_or(|wanted| id.text(&mut TaskId::text_buffer()).starts_with(wanted))
    }

    fn has_age(&self, began_ms: u64, now_ms: u64) -> bool {
        now_ms.saturating_sub(began_ms) >= self.older_than_ms
    }
}
