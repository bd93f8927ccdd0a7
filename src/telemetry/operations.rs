//! The durations of requests of clients and of requests to the server, as OpenTelemetry's conventions for MCP define
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use prometheus::Histogram;
use tokio::time::Instant;

use super::metrics::METRICS;
use super::operation_ending::OperationEnding;
use super::operation_series::{OperationSeries, OperationTerms, Side, series};

/// `true` if the durations can be read. Otherwise nothing is measured.
static ARE_READ: AtomicBool = AtomicBool::new(false);

/// Measures from now on.
pub fn measure() {
    ARE_READ.store(true, Ordering::Relaxed);
}

/// Returns `true` if durations are measured.
pub fn are_measured() -> bool {
    ARE_READ.load(Ordering::Relaxed)
}

thread_local! {
    /// To find a series takes longer than to count in it.
    static RESPONSES: Histogram =
        METRICS.operations.responses.with_label_values(&[]);
}

/// Counts the time from a request to a server over HTTP to the head of its response, which is there now.
pub fn responded(method: &Method, sent: Instant) {
    // The stream that a GET opens begins when the server likes.
    if are_measured() && method == Method::POST {
        let seconds = (Instant::now() - sent).as_secs_f64();
        RESPONSES.with(|responses| responses.observe(seconds));
    }
}

/// A request under way.
#[derive(Debug, Clone)]
pub struct Operation {
    series: Arc<OperationSeries>,
    began: Instant,
}

impl Operation {
    /// Begins to measure. Returns `None` if the result cannot be read by anyone. `tool` counts for a call of a tool
    /// only.
    pub fn begin(
        side: Side,
        method: &str,
        tool: Option<&str>,
        version: &str,
        transport: &'static str,
    ) -> Option<Self> {
        if !are_measured() {
            return None;
        }
        let tool = tool.filter(|_| method == "tools/call");
        let terms = OperationTerms {
            side,
            method,
            tool: tool.unwrap_or_default(),
            version,
            transport,
        };
        Some(Self {
            series: series(terms),
            began: Instant::now(),
        })
    }

    /// Returns true if the tool that is called becomes a label with a good answer of the server only.
    pub fn needs_proof(&self) -> bool {
        self.series.needs_proof()
    }

    /// Notes that the server itself answered with a good result.
    pub fn prove(&self) {
        self.series.prove();
    }

    /// Counts the operation.
    pub fn end(&self, ending: OperationEnding) {
        let seconds = (Instant::now() - self.began).as_secs_f64();
        self.series.observe(ending, seconds);
    }
}
