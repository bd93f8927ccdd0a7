//! Sums of what ended, by tool: one of each chunk is kept, so that a period need not be read entry by entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::{EndGroup, EndTimes};
use crate::task::durations::{bucket, bucket_bounds};

/// The tools that are told apart for certain, and half of the most. Clients choose the names that they call.
const TOOLS_MAX: usize = 200;

/// The name for all further tools.
const OTHERS: &str = "";

/// The number of entries of a chunk.
pub const ROWS: usize = 512;

const MINUTE_MS: u64 = 60_000;

/// What ended, by tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndSums {
    tools: BTreeMap<Box<str>, ToolEnds>,
}

/// The calls of one tool that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolEnds {
    #[serde(rename = "c")]
    pub completed: u64,
    #[serde(rename = "t")]
    pub tool_errors: u64,
    #[serde(rename = "f")]
    pub failed: u64,
    #[serde(rename = "x")]
    pub cancelled: u64,
    /// The durations of those that the server answered: how many lie in each bucket.
    #[serde(rename = "d")]
    took: BTreeMap<u8, u64>,
    /// How many began in each minute since 1970.
    #[serde(rename = "b")]
    began: BTreeMap<u64, u64>,
}

impl EndSums {
    /// Counts one ended task.
    pub fn count(&mut self, group: &EndGroup<'_>, times: &EndTimes) {
        let ends = self.tool(&group.tool);
        let is_answered = match &*group.outcome {
            "completed" => {
                ends.completed += 1;
                true
            }
            "tool_error" => {
                ends.tool_errors += 1;
                true
            }
            "failed" => {
                ends.failed += 1;
                false
            }
            _ => {
                ends.cancelled += 1;
                false
            }
        };
        if is_answered {
            let bucket = u8::try_from(bucket(times.took_ms)).unwrap_or(u8::MAX);
            *ends.took.entry(bucket).or_default() += 1;
        }
        let began_ms = times.ended_ms.saturating_sub(times.took_ms);
        *ends.began.entry(began_ms / MINUTE_MS).or_default() += 1;
    }

    /// Counts what was counted elsewhere.
    pub fn merge(&mut self, tool: &str, more: &ToolEnds) {
        self.tool(tool).merge(more);
    }

    /// Reads the sums of a chunk. `None`: raincheck did not write them.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let sums: Self = serde_json::from_slice(value).ok()?;
        // So no sum of many chunks is too large for its number.
        sums.tools
            .values()
            .all(ToolEnds::fit_a_chunk)
            .then_some(sums)
    }

    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The tools by name. Those that are not told apart have an empty name together.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &ToolEnds)> {
        self.tools.iter().map(|(tool, ends)| (&**tool, ends))
    }

    pub fn get(&self, tool: &str) -> Option<&ToolEnds> {
        self.tools.get(tool)
    }

    fn tool(&mut self, name: &str) -> &mut ToolEnds {
        if self.tools.len() >= 2 * TOOLS_MAX && !self.tools.contains_key(name) {
            self.fold_rare();
        }
        self.tools.entry(name.into()).or_default()
    }

    /// Counts the tools of which the fewest calls ended together: names that clients invent leave the tools that are there.
    fn fold_rare(&mut self) {
        let mut ends: Vec<u64> = self.tools.values().map(ToolEnds::ended).collect();
        ends.sort_unstable_by_key(|ended| std::cmp::Reverse(*ended));
        let least = ends.get(TOOLS_MAX).copied().unwrap_or_default();
        let tools = std::mem::take(&mut self.tools).into_iter();
        let (kept, rare): (_, BTreeMap<_, _>) =
            tools.partition(|(name, ends)| **name != *OTHERS && ends.ended() > least);
        self.tools = kept;
        let others = self.tools.entry(OTHERS.into()).or_default();
        for ends in rare.values() {
            others.merge(ends);
        }
    }
}

impl ToolEnds {
    /// Counts what was counted elsewhere.
    pub fn merge(&mut self, more: &Self) {
        self.completed += more.completed;
        self.tool_errors += more.tool_errors;
        self.failed += more.failed;
        self.cancelled += more.cancelled;
        for (bucket, count) in &more.took {
            *self.took.entry(*bucket).or_default() += count;
        }
        for (minute, count) in &more.began {
            *self.began.entry(*minute).or_default() += count;
        }
    }

    fn fit_a_chunk(&self) -> bool {
        let counts = [
            self.completed,
            self.tool_errors,
            self.failed,
            self.cancelled,
        ];
        let mut counts = counts
            .iter()
            .chain(self.took.values())
            .chain(self.began.values());
        counts.all(|count| *count <= ROWS as u64)
    }

    pub fn ended(&self) -> u64 {
        self.completed + self.tool_errors + self.failed + self.cancelled
    }

    /// The number of those that began between these times, which are whole minutes.
    pub fn began(&self, from_ms: u64, to_ms: u64) -> u64 {
        let minutes = from_ms / MINUTE_MS..to_ms / MINUTE_MS;
        self.began.range(minutes).map(|(_, count)| count).sum()
    }

    /// The milliseconds that this many of 1000 calls do not exceed, of those that the server answered. `None`: it answered none.
    pub fn quantile_ms(&self, of_1000: u64) -> Option<u64> {
        let all: u64 = self.took.values().sum();
        let target = (all * of_1000).div_ceil(1000).max(1);
        let mut before = 0;
        for (place, count) in &self.took {
            if before + count >= target {
                let (start, end) = bucket_bounds(usize::from(*place));
                return Some(start + (end - start) * (target - before) / count);
            }
            before += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(tool: &str, outcome: &'static str) -> EndGroup<'static> {
        EndGroup {
            tool: tool.to_owned().into(),
            caller: "c".into(),
            label: "".into(),
            replica: "".into(),
            outcome: outcome.into(),
            reason: "".into(),
            effect: "".into(),
            code: None,
            cancelled_by: None,
        }
    }

    fn times(ended_ms: u64, took_ms: u64) -> EndTimes {
        EndTimes {
            ended_ms,
            took_ms,
            ..EndTimes::default()
        }
    }

    #[test]
    fn each_tool_has_its_ends_and_durations() {
        let mut sums = EndSums::default();
        for took in 1..=100 {
            sums.count(&group("build", "completed"), &times(600_000, took * 1000));
        }
        sums.count(&group("build", "failed"), &times(600_000, 999_000));
        sums.count(&group("build", "tool_error"), &times(60_000, 0));
        sums.count(&group("deploy", "cancelled"), &times(60_000, 0));
        let sums = EndSums::decode(&sums.encode()).unwrap();
        let (build, deploy) = (sums.get("build").unwrap(), sums.get("deploy").unwrap());
        assert_eq!(
            (build.completed, build.failed, build.tool_errors),
            (100, 1, 1)
        );
        assert_eq!((build.ended(), deploy.cancelled), (102, 1));
        for (of_1000, exact) in [(500, 50_000), (900, 90_000)] {
            let found = build.quantile_ms(of_1000).unwrap();
            assert!(found.abs_diff(exact) <= exact / 8, "{of_1000}: {found}");
        }
        assert_eq!(deploy.quantile_ms(500), None);
        // Those of 541 s to 600 s took at most 59 s.
        assert_eq!(build.began(540_000, 600_000), 60);
        assert_eq!(build.began(0, 540_000), 42);
        let wild = r#"{"x":{"c":18446744073709551615,"t":1,"f":0,"x":0,"d":{},"b":{}}}"#;
        assert_eq!(EndSums::decode(wild.as_bytes()), None);
        let mut merged = sums.clone();
        merged.merge("build", build);
        merged.merge("deploy", deploy);
        assert_eq!(
            merged.tools().map(|(_, ends)| ends.ended()).sum::<u64>(),
            206
        );
    }

    #[test]
    fn names_that_clients_invent_are_bounded_and_hide_no_tool() {
        let mut sums = EndSums::default();
        for number in 0..3_000 {
            let invented = format!("a_{number}");
            sums.count(&group(&invented, "failed"), &times(1, 1));
            // It comes late, and it comes often.
            if number > 1_000 && number % 10 == 0 {
                sums.count(&group("real", "completed"), &times(1, 1));
            }
        }
        assert!(sums.tools().count() <= 2 * TOOLS_MAX);
        assert!(sums.get("real").unwrap().completed > 190);
        let all = sums.tools().map(|(_, ends)| ends.ended());
        assert_eq!(all.sum::<u64>(), 3_199);
    }
}
