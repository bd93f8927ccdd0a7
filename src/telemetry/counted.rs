//! Counts what is there now, and how long it lasted: calls that run, sessions and processes of the server.

use prometheus::{Histogram, IntGauge};
use tokio::time::Instant;

use super::metrics::METRICS;
use crate::base::limit_fill::{CALLS, HELD_POLLS, LimitFill};

/// Counts one thing until it is dropped.
#[derive(Debug)]
pub struct Counted {
    gauge: &'static IntGauge,
    lasted: Option<(Histogram, Instant)>,
}

impl Counted {
    fn of(gauge: &'static IntGauge) -> Self {
        gauge.inc();
        Self {
            gauge,
            lasted: None,
        }
    }

    /// With the highest number that was reached of a limit.
    fn filling(self, limit: &LimitFill) -> Self {
        limit.reached(usize::try_from(self.gauge.get()).unwrap_or_default());
        self
    }

    /// With the time that it lasted.
    fn measured(mut self, durations: Histogram) -> Self {
        self.lasted = Some((durations, Instant::now()));
        self
    }

    /// A call that this replica carries.
    pub fn call() -> Self {
        Self::of(&METRICS.process.calls_running).filling(&CALLS)
    }

    /// A call that waits for its turn.
    pub fn waiting_call() -> Self {
        Self::of(&METRICS.process.calls_waiting)
    }

    /// A poll that waits for a change of its task.
    pub fn held_poll() -> Self {
        Self::of(&METRICS.process.polls_held).filling(&HELD_POLLS)
    }

    /// A session with a legacy server.
    pub fn session() -> Self {
        let sessions = &METRICS.operations.client_sessions;
        Self::of(&METRICS.process.sessions).measured(sessions.with_label_values(&["tcp"]))
    }

    /// A process of the server.
    pub fn process() -> Self {
        let sessions = &METRICS.operations.client_sessions;
        Self::of(&METRICS.process.processes).measured(sessions.with_label_values(&["pipe"]))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.gauge.dec();
        if let Some((durations, since)) = &self.lasted {
            durations.observe((Instant::now() - *since).as_secs_f64());
        }
    }
}
