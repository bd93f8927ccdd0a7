//! The series that operations count in. To find a series by its labels takes longer than to count, so each thread remembers
//! those of the operations that it began last.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use prometheus::Histogram;

use super::known_names::{known_method, known_version};
use super::metrics::METRICS;
use super::operation_ending::{OTHER, OperationEnding};
use super::tool::{needs_proof, succeeded, with_label};

/// Which side of an operation raincheck is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client asks raincheck.
    Server,
    /// raincheck asks the server.
    Client,
}

/// The terms that distinguish operations before they end. Clients choose method, tool and version.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperationTerms<'t> {
    pub(super) side: Side,
    pub(super) method: &'t str,
    /// Empty where no tool is called.
    pub(super) tool: &'t str,
    pub(super) version: &'t str,
    pub(super) transport: &'static str,
}

/// The series of operations that differ in their ends only.
#[derive(Debug)]
pub(super) struct OperationSeries {
    side: Side,
    /// A client's choice is a label only where it is known.
    method: &'static str,
    tool: Box<str>,
    version: &'static str,
    transport: &'static str,
    /// The series of good answers, which nearly all are.
    good: OnceLock<Histogram>,
}

impl OperationSeries {
    fn new(terms: OperationTerms<'_>) -> Self {
        Self {
            side: terms.side,
            method: known_method(terms.method).unwrap_or(OTHER),
            tool: terms.tool.into(),
            version: known_version(terms.version).unwrap_or_default(),
            transport: terms.transport,
            good: OnceLock::new(),
        }
    }

    /// Counts an operation.
    pub(super) fn observe(&self, ending: OperationEnding, seconds: f64) {
        if ending != OperationEnding::Good {
            return self.ending(ending).observe(seconds);
        }
        if let Some(good) = self.good.get() {
            return good.observe(seconds);
        }
        let good = self.ending(ending);
        good.observe(seconds);
        // The tool may become a label later.
        if self.tool.is_empty() || !needs_proof(&self.tool) {
            let _ = self.good.set(good);
        }
    }

    /// Makes the tool a label, because the server answered a call of it.
    pub(super) fn prove(&self) {
        // A series that is remembered has its label already. This spares the lock of all names.
        if self.good.get().is_none() && !self.tool.is_empty() {
            succeeded(&self.tool);
        }
    }

    /// Returns true if the tool becomes a label with a good answer of the server only.
    pub(super) fn needs_proof(&self) -> bool {
        self.good.get().is_none() && !self.tool.is_empty() && needs_proof(&self.tool)
    }

    /// The series of operations that end so.
    fn ending(&self, ending: OperationEnding) -> Histogram {
        let (kind, code) = ending.labels();
        let metrics = &METRICS.operations;
        let durations = match self.side {
            Side::Server => &metrics.server,
            Side::Client => &metrics.client,
        };
        let of_tool = |tool: &str| {
            let labels = [
                self.method,
                tool,
                &kind,
                &code,
                self.version,
                self.transport,
            ];
            durations.with_label_values(&labels)
        };
        if self.tool.is_empty() {
            of_tool("")
        } else {
            with_label(&self.tool, of_tool)
        }
    }

    fn is_of(&self, terms: &OperationTerms<'_>) -> bool {
        self.side == terms.side
            && self.method == terms.method
            && *self.tool == *terms.tool
            && self.version == terms.version
            && self.transport == terms.transport
    }
}

const RECENT_MAX: usize = 8;

/// Clients choose the names of tools. A longer one is not remembered.
const TOOL_BYTES_MAX: usize = 256;

thread_local! {
    static RECENT: RefCell<VecDeque<Arc<OperationSeries>>> = RefCell::default();
}

/// The series of an operation that begins on this thread.
pub(super) fn series(terms: OperationTerms<'_>) -> Arc<OperationSeries> {
    RECENT.with_borrow_mut(|recent| {
        if let Some(known) = recent.iter().find(|known| known.is_of(&terms)) {
            return Arc::clone(known);
        }
        let series = Arc::new(OperationSeries::new(terms));
        // A method or a version that is not known would not be found again.
        if series.is_of(&terms) && terms.tool.len() <= TOOL_BYTES_MAX {
            // Each operation searches this list, so it stays short.
            recent.truncate(RECENT_MAX - 1);
            recent.push_front(Arc::clone(&series));
        }
        series
    })
}

#[cfg(test)]
mod tests {
    use super::super::tool::listed;
    use super::*;

    #[test]
    fn each_operation_counts_in_its_own_series() {
        let count = |method, tool: &str, ending| {
            let series = series(OperationTerms {
                side: Side::Client,
                method,
                tool,
                version: "2026-07-28",
                transport: "recent",
            });
            series.observe(ending, 0.1);
            series.ending(ending).get_sample_count()
        };
        let good = OperationEnding::Good;
        let names = (0..2 * RECENT_MAX).map(|tool| format!("recent-{tool}").into());
        listed(&names.collect::<Vec<Box<str>>>());
        for round in 1..=3 {
            // More tools than are remembered.
            for tool in 0..2 * RECENT_MAX {
                let tool = format!("recent-{tool}");
                assert_eq!(count("tools/call", &tool, good), round, "{tool}");
                let failed = count("tools/call", &tool, OperationEnding::ToolError);
                assert_eq!(failed, round, "{tool}");
            }
            assert_eq!(count("tools/list", "", good), round);
        }
        let long = "x".repeat(TOOL_BYTES_MAX + 1);
        count("tools/call", &long, good);
        count("of-a-client", "", good);
        RECENT.with_borrow(|recent| {
            assert_eq!(recent.len(), RECENT_MAX);
            let is_kept =
                |series: &OperationSeries| *series.tool != long && series.method.contains('/');
            assert!(recent.iter().all(|series| is_kept(series)));
        });
    }
}
