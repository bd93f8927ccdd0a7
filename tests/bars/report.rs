//! What a bar found: counts, and every count that is not as it must be, with its evidence.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::Asked;

/// Pieces of evidence shown for one broken promise; the count tells of the rest.
const SHOWN_MAX: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: BTreeMap<String, u64>,
    broken: Vec<String>,
}

impl Report {
    /// Adds to a count that may be anything.
    pub(crate) fn count(&mut self, name: &str, by: impl TryInto<u64>) {
        *self.counts.entry(name.to_owned()).or_default() += by.try_into().unwrap_or(u64::MAX);
    }

    /// A count that must be zero, with what was seen each time it was not.
    pub(crate) fn zero(&mut self, name: &str, seen: Vec<String>) {
        self.count(name, seen.len());
        let more = seen.len().saturating_sub(SHOWN_MAX);
        for evidence in seen.into_iter().take(SHOWN_MAX) {
            self.breaks(format!("{name}: {evidence}"));
        }
        if more > 0 {
            self.breaks(format!("{name}: and {more} more"));
        }
    }

    pub(crate) fn at_least(&mut self, name: &str, got: impl TryInto<u64>, least: u64) {
        self.at_least_but(name, got, least, Vec::new());
    }

    /// The same, with what is known of those that are missing.
    pub(crate) fn at_least_but(
        &mut self,
        name: &str,
        got: impl TryInto<u64>,
        least: u64,
        missing: Vec<String>,
    ) {
        let got = got.try_into().unwrap_or_default();
        self.count(name, got);
        if got < least {
            self.breaks(format!("{name}: {got}, must be at least {least}"));
            for evidence in missing.into_iter().take(SHOWN_MAX) {
                self.breaks(format!("{name}: not {evidence}"));
            }
        }
    }

    pub(crate) fn at_most(&mut self, name: &str, got: impl TryInto<u64>, most: u64) {
        let got = got.try_into().unwrap_or(u64::MAX);
        let worst = self.counts.entry(name.to_owned()).or_default();
        *worst = got.max(*worst);
        if got > most {
            self.breaks(format!("{name}: {got}, must be at most {most}"));
        }
    }

    /// Takes over what a part of the bar found.
    pub(crate) fn join(&mut self, part: Self) {
        for (name, count) in part.counts {
            self.count(&name, count);
        }
        self.broken.extend(part.broken);
    }

    /// A promise was broken.
    pub(crate) fn breaks(&mut self, how: String) {
        self.broken.push(how);
    }

    pub(crate) fn ok(&self) -> bool {
        self.broken.is_empty()
    }

    pub(crate) fn line(&self, bar: &str, n: u32, asked: Asked, took: Duration) -> String {
        let mut line = json!({
            "bar": bar,
            "n": n,
            "size": asked.size,
            "seed": asked.seed.first(),
            "counts": self.counts,
            "seconds": took.as_secs(),
            "commit": commit(),
            "ok": self.ok(),
        });
        if !self.ok() {
            line["broken"] = json!(self.broken);
        }
        line.to_string()
    }
}

/// What was tested: this tree, or what is said of the binary that was named instead.
fn commit() -> String {
    if let Ok(named) = std::env::var("RAINCHECK_COMMIT") {
        return named;
    }
    let git = Command::new("git")
        .args([
            "describe",
            "--always",
            "--dirty",
            "--abbrev=10",
            "--exclude=*",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let said = git.ok().filter(|output| output.status.success());
    let text = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}
