//! The durations of the calls of each tool that the replicas learned, and the times after which clients give up.

use std::cmp::Reverse;
use std::time::Duration;

use crate::cli::table::short;
use crate::runner::learned::memory::LearnedTool;

/// The tools that are named. The board shows any other.
const NAMED: usize = 8;

/// `None`: nothing was learned, or it cannot be read.
pub(super) fn learned(tools: &[LearnedTool]) -> Option<String> {
    let mut tools: Vec<_> = tools.iter().collect();
    tools.sort_by_key(|tool| (Reverse(tool.seen), &tool.name));
    listed(tools.iter().map(|tool| sentence(tool)).collect())
}

/// `None`: no client is known to give up, or it cannot be read.
pub(super) fn clocks(tools: &[(String, Duration)]) -> Option<String> {
    let sentence = |(name, time): &(String, Duration)| {
        // A clock begins a little before its call arrives.
        let tenths = time.as_millis().saturating_add(50) / 100;
        let time = seconds(
            u64::try_from(tenths)
                .unwrap_or(u64::MAX)
                .saturating_mul(100),
        );
        format!("{}: a client gives up after {time}", short(name))
    };
    listed(tools.iter().map(sentence).collect())
}

fn listed(mut sentences: Vec<String>) -> Option<String> {
    let more = sentences.len().saturating_sub(NAMED);
    sentences.truncate(NAMED);
    let more = (more > 0).then(|| format!("; and {more} more tools"));
    (!sentences.is_empty()).then(|| sentences.join("; ") + more.as_deref().unwrap_or_default())
}

fn sentence(tool: &LearnedTool) -> String {
    let (median, p90) = (seconds(tool.median_ms), seconds(tool.p90_ms));
    let (name, seen) = (short(&tool.name), tool.seen);
    format!("{name}: half end within {median}, 9 of 10 within {p90} ({seen} tasks)")
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_that_are_called_most_are_named() {
        let tool = |name: &str, seen| LearnedTool {
            name: name.into(),
            seen,
            median_ms: 12_345,
            p90_ms: 60_000,
        };
        assert_eq!(learned(&[]), None);
        let some = [tool("build", 20), tool("x\u{1b}[2J", 100)];
        let said = learned(&some).unwrap();
        let build = "build: half end within 12.3 s, 9 of 10 within 60.0 s (20 tasks)";
        assert!(said.ends_with(build) && !said.contains('\u{1b}'), "{said}");
        let clock = ("build".to_owned(), Duration::from_millis(59_980));
        let said = clocks(&[clock]).unwrap();
        assert_eq!(said, "build: a client gives up after 60.0 s");
        assert_eq!(clocks(&[]), None);
        let many: Vec<_> = (0..20).map(|n| tool(&format!("t{n}"), n)).collect();
        let said = learned(&many).unwrap();
        assert!(
            said.starts_with("t19: ") && said.ends_with("; and 12 more tools"),
            "{said}"
        );
    }
}
