//! Pauses of tools: until a pause ends, new calls of its tools do not begin. Pure.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tool_pattern::ToolPattern;
use crate::base::utc::rfc3339;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;

/// The most pauses at a time.
pub const PAUSES_MAX: usize = 64;

/// The longest reason of a pause, in characters.
pub const REASON_MAX: usize = 200;

/// The longest time for which tools are paused, in milliseconds: 30 days.
pub const DURATION_MS_MAX: u64 = 30 * 24 * 3_600_000;

/// One pause. Times are Unix milliseconds of the clock that replicas share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The tools, in the words of a [`ToolPattern`].
    pub tools: Box<str>,
    pub since_ms: u64,
    /// The time at which it ends by itself.
    pub until_ms: u64,
    /// The operator's reason, for clients and operators. Empty: none was given.
    pub reason: Box<str>,
    /// The name of the operator, for operators only. Empty: the operator has none. Replicas of an earlier version drop it.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub by: Box<str>,
}

impl Pause {
    /// The failure of a call that the pause refuses.
    pub fn failure(&self) -> Failure {
        Failure::new(Reason::Paused, SideEffect::None).with_detail(self.terms())
    }

    /// Returns when the pause ends, and why there is one, to follow "paused".
    pub fn terms(&self) -> FailureDetail {
        FailureDetail::Until {
            at: rfc3339(self.until_ms),
            why: self.reason.clone(),
        }
    }
}

/// The pauses that are in force, each of other tools' patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses(Vec<(ToolPattern, Arc<Pause>)>);

impl Pauses {
    /// Reads the value that replicas share. `None`: it cannot be read.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let all: Vec<Pause> = serde_json::from_slice(value).ok()?;
        Some(Self(all.into_iter().map(entry).collect()))
    }

    pub fn encode(&self) -> Vec<u8> {
        let all: Vec<&Pause> = self.iter().map(|pause| &**pause).collect();
        serde_json::to_vec(&all).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pause>> {
        self.0.iter().map(|(_, pause)| pause)
    }

    pub fn has(&self, pause: &Pause) -> bool {
        self.iter().any(|known| **known == *pause)
    }

    /// Returns the pause of a tool: of several, the one that ends last.
    pub fn of(&self, tool: &str) -> Option<&Arc<Pause>> {
        let of_tool = self.0.iter().filter(|(tools, _)| tools.is_match(tool));
        of_tool
            .map(|(_, pause)| pause)
            .max_by_key(|pause| pause.until_ms)
    }

    /// Returns the time at which the next pause ends.
    pub fn next_end_ms(&self) -> Option<u64> {
        self.iter().map(|pause| pause.until_ms).min()
    }

    /// Without those that have ended.
    #[must_use]
    pub fn in_force(mut self, now_ms: u64) -> Self {
        self.0.retain(|(_, pause)| pause.until_ms > now_ms);
        self
    }

    /// With this pause, in place of one of the same tools. `None`: there are too many.
    #[must_use]
    pub fn with(self, pause: Pause) -> Option<Self> {
        let mut all = self.without(&pause.tools).0;
        if all.len() >= PAUSES_MAX {
            return None;
        }
        all.push(entry(pause));
        Some(Self(all))
    }

    /// Without the pause of these very tools.
    #[must_use]
    pub fn without(mut self, tools: &str) -> Self {
        self.0.retain(|(known, _)| known.as_str() != tools);
        self
    }
}

fn entry(pause: Pause) -> (ToolPattern, Arc<Pause>) {
    (ToolPattern::of(&pause.tools), Arc::new(pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(tools: &str, until_ms: u64) -> Pause {
        Pause {
            tools: tools.into(),
            since_ms: 1,
            until_ms,
            reason: "upgrade".into(),
            by: "".into(),
        }
    }

    fn pauses(all: &[Pause]) -> Pauses {
        let all = all.iter().cloned();
        all.fold(Pauses::default(), |pauses, pause| {
            pauses.with(pause).unwrap()
        })
    }

    #[test]
    fn a_tool_is_paused_until_its_last_pause_ends() {
        let all = pauses(&[pause("build_*", 20), pause("build_docs", 30)]);
        assert_eq!(all.of("build_docs").unwrap().until_ms, 30);
        assert_eq!(all.of("build_all").unwrap().until_ms, 20);
        assert_eq!(all.of("deploy"), None);
        assert_eq!(all.next_end_ms(), Some(20));
        let later = all.in_force(20);
        assert_eq!(later, pauses(&[pause("build_docs", 30)]));
        assert!(later.in_force(30).is_empty());
    }

    #[test]
    fn the_last_word_about_the_same_tools_counts() {
        let longer = pauses(&[pause("x", 20), pause("x", 40)]);
        assert_eq!(longer, pauses(&[pause("x", 40)]));
        assert!(longer.without("x").is_empty());
    }

    #[test]
    fn there_are_not_more_than_an_operator_can_oversee() {
        let names = (0..PAUSES_MAX).map(|number| pause(&format!("t{number}"), 9));
        let full = pauses(&names.collect::<Vec<_>>());
        assert_eq!(full.clone().with(pause("one more", 9)), None);
        assert!(
            full.with(pause("t3", 10)).is_some(),
            "a change is none more"
        );
    }

    #[test]
    fn replicas_read_what_one_wrote_and_nothing_else() {
        let by_ada = Pause {
            by: "ada".into(),
            ..pause("b", 30)
        };
        let all = pauses(&[pause("a\"[", 20), by_ada]);
        assert_eq!(Pauses::decode(&all.encode()), Some(all));
        assert_eq!(Pauses::decode(b"{}"), None);
        assert_eq!(Pauses::decode(&[]), None);
    }

    #[test]
    fn a_refused_call_is_told_until_when_and_why() {
        let mut told = pause("x", 1_764_599_400_000);
        told.by = "somebody".into();
        let message = told.failure().message();
        assert_eq!(
            message,
            "An operator has paused this tool: until 2025-12-01T14:30:00.000Z (upgrade); it did not run; it can be \
             called again then"
        );
        told.reason = "".into();
        assert!(
            told.failure()
                .message()
                .contains("14:30:00.000Z; it did not run")
        );
        let data = told.failure().to_error().data.unwrap();
        assert!(
            data.contains(r#""io.raincheck/until":"2025-12-01T14:30:00.000Z""#),
            "{data}"
        );
    }
}
