//! The durations of a few tools, under their names. Pure. Names come from clients, so that both their length and their
//! number are bounded.

use std::collections::HashMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::task::durations::Durations;
use crate::task::polling::KNOWN_CALLS;

/// Tools in one part.
pub(super) const TOOLS_MAX: usize = 32;

/// The longest name. Nothing is learned of tools with longer ones.
const NAME_BYTES_MAX: usize = 128;

/// The durations of a part of all tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolDurations(HashMap<Box<str>, Durations>);

/// The form in which the store keeps a part.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenTools {
    /// A number that distinguishes two equal writes of two replicas.
    write: u128,
    tools: Vec<WrittenTool>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WrittenTool {
    name: Box<str>,
    seen: u64,
    epoch: u64,
    weights: Vec<(u8, u32)>,
}

impl ToolDurations {
    pub(super) fn get(&self, tool: &str) -> Option<&Durations> {
        self.0.get(tool)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Durations)> {
        self.0.iter().map(|(tool, durations)| (&**tool, durations))
    }

    pub(super) fn count(&mut self, tool: &str, took_ms: u64, now_ms: u64) {
        if let Some(durations) = self.entry(tool, || Durations::new(now_ms)) {
            durations.count(took_ms, now_ms);
        }
    }

    /// Counts what was counted elsewhere.
    pub(super) fn merge(&mut self, other: &Self) {
        for (tool, more) in &other.0 {
            let empty = || Durations::from_sparse(0, more.sparse().1, &[]);
            if let Some(durations) = self.entry(tool, empty) {
                durations.merge(more);
            }
        }
    }

    /// `None`: there is no room. A tool of which enough calls were counted keeps its place, so that a client that calls many
    /// names displaces only names like its own.
    fn entry(&mut self, tool: &str, empty: impl FnOnce() -> Durations) -> Option<&mut Durations> {
        if !self.0.contains_key(tool) {
            if tool.len() > NAME_BYTES_MAX {
                return None;
            }
            if self.0.len() >= TOOLS_MAX {
                let fewest = self.0.iter().min_by_key(|(_, known)| known.calls());
                let (name, _) = fewest.filter(|(_, known)| known.calls() < KNOWN_CALLS)?;
                let name = name.clone();
                self.0.remove(&name);
            }
        }
        Some(self.0.entry(tool.into()).or_insert_with(empty))
    }

    /// Encodes the durations for the store. `write` must be new each time.
    pub(super) fn encode(&self, write: u128) -> Bytes {
        let tools = self.0.iter().map(|(name, durations)| {
            let (seen, epoch, weights) = durations.sparse();
            WrittenTool {
                name: name.clone(),
                seen,
                epoch,
                weights,
            }
        });
        let tools = tools.collect();
        let written = serde_json::to_vec(&WrittenTools { write, tools });
        written.unwrap_or_default().into()
    }

    /// Decodes a stored part. A value that cannot be read counts as empty, and is overwritten.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let written: Option<WrittenTools> = serde_json::from_slice(bytes).ok();
        let mut tools = Self::default();
        for tool in written.into_iter().flat_map(|written| written.tools) {
            let durations = || Durations::from_sparse(tool.seen, tool.epoch, &tool.weights);
            // The bounds hold for a stored part, too, because it may come from another replica.
            tools.entry(&tool.name, durations);
        }
        tools
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut tools = ToolDurations::default();
        tools.count("build", 60_000, 5);
        tools.count("build", 70_000, 5);
        tools.count("say \"hi\"", 10, 5);
        assert_eq!(ToolDurations::decode(&tools.encode(u128::MAX)), tools);
        assert_ne!(tools.encode(1), tools.encode(2));
        for broken in [&b""[..], b"{}", b"[1]", b"\xff"] {
            assert!(ToolDurations::decode(broken).is_empty());
        }
    }

    #[test]
    fn a_flood_of_names_displaces_only_its_own() {
        let mut tools = ToolDurations::default();
        for _ in 0..KNOWN_CALLS {
            tools.count("build", 1_000, 0);
        }
        for n in 0..10_000 {
            tools.count(&format!("made up {n}"), 1, 0);
            assert!(tools.0.len() <= TOOLS_MAX);
        }
        assert_eq!(tools.get("build").unwrap().seen(), KNOWN_CALLS);
        tools.count(&"long".repeat(100), 1, 0);
        assert!(tools.0.keys().all(|name| name.len() <= NAME_BYTES_MAX));
    }

    #[test]
    fn no_call_is_lost_when_two_replicas_meet() {
        let (mut stored, mut one, mut other) = (
            ToolDurations::default(),
            ToolDurations::default(),
            ToolDurations::default(),
        );
        one.count("build", 1_000, 0);
        other.count("build", 2_000, 0);
        other.count("test", 3_000, 0);
        stored.merge(&one);
        stored.merge(&other);
        let seen = |tool| stored.get(tool).map(Durations::seen);
        assert_eq!((seen("build"), seen("test")), (Some(2), Some(1)));
    }
}
