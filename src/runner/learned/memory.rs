//! The durations of tools in the memory of this replica, and the part of them that the store contains.

use std::sync::MutexGuard;

use bytes::Bytes;

use super::tools::ToolDurations;
use crate::base::lock::Mutex;
use crate::store::kv::{Kind, Name};
use crate::task::durations::Durations;
use crate::task::polling::{PollTerms, interval_ms};
use crate::task::state::{Outcome, Task};

/// The parts in which the store keeps what was learned, each under a key of its own: a write costs no more than one part,
/// and the number of tools is bounded.
const PARTS: u8 = 16;

/// The learned durations of tools.
#[derive(Debug)]
pub struct Learned {
    pub(super) parts: Vec<Mutex<LearnedPart>>,
}

#[derive(Debug, Default)]
pub(super) struct LearnedPart {
    /// The durations that the store had when it was read last, and those that this replica counted since.
    pub(super) known: ToolDurations,
    /// The durations that this replica counted and the store does not have.
    pub(super) unsaved: ToolDurations,
}

/// The learned durations of a tool, as operators see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedTool {
    pub name: String,
    /// All calls that were ever counted.
    pub seen: u64,
    pub median_ms: u64,
    pub p90_ms: u64,
}

impl Default for Learned {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        Self { parts }
    }
}

impl Learned {
    /// Counts the end of a call. Only calls that their server answered show how long a call takes, and only those
    /// that were announced to a client as a task are polled.
    pub fn ended(&self, task: &Task) {
        if !task.announced || !matches!(task.outcome, Some(Outcome::Completed(_))) {
            return;
        }
        let took_ms = task.updated_ms.saturating_sub(task.created_ms);
        if let Some(mut part) = self.part(&task.name) {
            let LearnedPart { known, unsaved } = &mut *part;
            known.count(&task.name, took_ms, task.updated_ms);
            unsaved.count(&task.name, took_ms, task.updated_ms);
        }
    }

    /// The poll interval for a task of this tool.
    pub fn interval_ms(&self, terms: PollTerms, tool: &str, age_ms: u64) -> u64 {
        let part = self.part(tool);
        let known = part.as_ref().and_then(|part| part.known.get(tool));
        interval_ms(terms, known, age_ms)
    }

    /// Returns the learned durations of a tool.
    pub fn tool(&self, name: &str) -> Option<LearnedTool> {
        let part = self.part(name)?;
        tool((name, part.known.get(name)?))
    }

    fn part(&self, tool: &str) -> Option<MutexGuard<'_, LearnedPart>> {
        let part = self.parts.get(usize::from(part_of(tool)));
        part.map(Mutex::lock)
    }
}

/// `None`: nothing is left of what was learned.
fn tool((name, durations): (&str, &Durations)) -> Option<LearnedTool> {
    Some(LearnedTool {
        name: name.to_owned(),
        seen: durations.seen(),
        median_ms: durations.quantile(500)?,
        p90_ms: durations.quantile(900)?,
    })
}

/// The same on every replica, because the stored parts have to fit.
fn part_of(tool: &str) -> u8 {
    // Names of tools hardly need a good hash, and each new task asks for one.
    tool.bytes()
        .fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
        % PARTS
}

/// The names under which the store keeps what was learned.
pub fn names() -> impl Iterator<Item = Name> {
    (0..PARTS).map(name)
}

/// Reads the learned durations of tools from the values of those names.
pub fn described(values: impl Iterator<Item = Bytes>) -> Vec<LearnedTool> {
    let parts: Vec<ToolDurations> = values.map(|value| ToolDurations::decode(&value)).collect();
    parts
        .iter()
        .flat_map(ToolDurations::iter)
        .filter_map(tool)
        .collect()
}

/// The name of one part.
pub(super) fn name(number: u8) -> Name {
    // Earlier versions divided the tools among the parts in another way, under the number alone.
    Name::of(Kind::Durations, &["by name", &number.to_string()])
}
