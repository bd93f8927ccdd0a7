//! Metrics for operators about requests that a limit refuses: a counter for each limit, by the name of its setting.

use std::sync::LazyLock;

use prometheus::IntCounter;

use super::metrics::METRICS;
use crate::base::limit_fill;

/// A limit that refuses requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitHit {
    /// Too many calls at the same time.
    Calls,
    /// Too many calls of one caller at the same time.
    CallsPerCaller,
    /// Too many requests of one caller at the same time.
    RequestsPerCaller,
    /// The drain has begun: no new call is taken.
    Drain,
    /// Too many calls wait for their turn.
    Queue,
    /// An operator has paused the tool.
    Paused,
    /// Too many tasks are kept, or too many bytes of them.
    Tasks,
    /// A request is too large.
    BodyBytes,
    /// Too many bytes of requests and answers wait.
    BufferBytes,
    /// Too many connections: some without a whole request give way.
    Connections,
    /// Too many sessions or processes are in use at the server.
    Sessions,
}

impl LimitHit {
    pub const ALL: [Self; 11] = [
        Self::Calls,
        Self::CallsPerCaller,
        Self::RequestsPerCaller,
        Self::Drain,
        Self::Queue,
        Self::Paused,
        Self::Tasks,
        Self::BodyBytes,
        Self::BufferBytes,
        Self::Connections,
        Self::Sessions,
    ];

    /// The label: the setting to look at.
    fn word(self) -> &'static str {
        match self {
            Self::Calls => "limits.calls",
            Self::CallsPerCaller => "limits.calls_per_caller",
            Self::RequestsPerCaller => "limits.requests_per_caller",
            Self::Drain => "drain",
            Self::Queue => "queue",
            Self::Paused => "paused",
            Self::Tasks => "limits.tasks",
            Self::BodyBytes => "limits.body_bytes_max",
            Self::BufferBytes => "limits.buffer_bytes_max",
            Self::Connections => "limits.connections",
            Self::Sessions => "upstream.sessions_max",
        }
    }
}

/// One counter for each limit, so that counting takes no lock. All are there from the start, at 0, so that an alert
/// sees the first refusal.
static COUNTERS: LazyLock<[IntCounter; 11]> = LazyLock::new(|| {
    LimitHit::ALL.map(|limit| METRICS.calls.refusals.with_label_values(&[limit.word()]))
});

/// Counts a request that the limit refused.
pub fn refused(limit: LimitHit) {
    let place = LimitHit::ALL.iter().position(|known| *known == limit);
    // The counters are in the order of `ALL`.
    if let Some(counter) = place.and_then(|place| COUNTERS.get(place)) {
        counter.inc();
    }
}

/// Writes the limits, and how near each was, into the metrics. Called for each scrape.
pub fn measure() {
    let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let calls = &METRICS.calls;
    for fill in limit_fill::ALL {
        if let Some((limit, highest)) = fill.read() {
            let labels = [fill.setting];
            calls.limits.with_label_values(&labels).set(gauge(limit));
            let reached = calls.limits_reached.with_label_values(&labels);
            reached.set(gauge(highest));
        }
    }
}

/// Reports the number of pauses of tools that are in force.
pub fn paused(count: usize) {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    METRICS.calls.pauses.set(count);
}

/// Shows every limit from the start.
pub fn begin() {
    LazyLock::force(&COUNTERS);
}
