//! What was measured, as one line of JSON. Lines of earlier versions have the same members.

use serde::Serialize;

use crate::open::Opened;
use crate::options::{Mode, Options, Repeated, Wire};
use crate::run::Measured;
use crate::tally::Tally;

#[derive(Debug, Serialize)]
pub(crate) struct Line {
    label: String,
    mode: &'static str,
    wire: Wire,
    url: String,
    concurrency: usize,
    rate: f64,
    seconds: f64,
    count: u64,
    errors: u64,
    rps: f64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    #[serde(flatten)]
    events: Option<Events>,
    #[serde(flatten)]
    processes: Option<Processes>,
    #[serde(flatten)]
    held: Option<Held>,
    first_error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Events {
    events: u64,
    events_per_s: f64,
}

/// Of the processes that `--pid` names. A unit is a call, or an event of mode `sse`.
#[derive(Debug, Serialize)]
struct Processes {
    cpu_user_ms: u64,
    cpu_sys_ms: u64,
    cpu_us_per_unit: f64,
    rss_before_kb: u64,
    rss_peak_kb: u64,
}

/// Of the calls that were held open.
#[derive(Debug, Serialize)]
struct Held {
    opened: u64,
    open_s: f64,
    open_per_s: f64,
    lost: u64,
    sample_bad: u64,
    rss_open_kb: u64,
    kib_per_open: f64,
    cpu_ms_open: u64,
}

impl Line {
    pub(crate) fn of(options: &Options, tally: &Tally, measured: &Measured) -> Self {
        let latencies = tally.sorted_latencies_ns();
        let (count, events) = (tally.calls(), tally.events());
        let is_sse = options.mode == Mode::Repeat(Repeated::Sse);
        let units = if is_sse { events } else { count };
        Self {
            label: options.label.clone(),
            mode: options.mode.word(),
            wire: options.wire,
            url: options.url.clone(),
            concurrency: options.concurrency,
            rate: options.rate,
            seconds: rounded(measured.seconds, 2),
            count,
            errors: tally.errors(),
            rps: rounded(per(count, measured.seconds), 1),
            mean_us: mean_us(&latencies),
            p50_us: quantile_us(&latencies, 500),
            p90_us: quantile_us(&latencies, 900),
            p99_us: quantile_us(&latencies, 990),
            p999_us: quantile_us(&latencies, 999),
            max_us: quantile_us(&latencies, 1000),
            events: is_sse.then(|| Events {
                events,
                events_per_s: rounded(per(events, measured.seconds), 0),
            }),
            processes: (!options.pids.is_empty()).then(|| Processes {
                cpu_user_ms: measured.usage.user_ms,
                cpu_sys_ms: measured.usage.system_ms,
                cpu_us_per_unit: rounded(
                    float(measured.usage.cpu_ms()) * 1000.0 / float(units.max(1)),
                    1,
                ),
                rss_before_kb: 0,
                rss_peak_kb: 0,
            }),
            held: None,
            first_error: tally.first_error(),
        }
    }

    pub(crate) fn with_memory(mut self, before_kib: u64, peak_kib: u64) -> Self {
        if let Some(processes) = &mut self.processes {
            processes.rss_before_kb = before_kib;
            processes.rss_peak_kb = peak_kib;
        }
        self
    }

    pub(crate) fn with_open(mut self, opened: Option<Opened>) -> Self {
        self.held = opened.map(|opened| {
            let grown = opened.rss_kib.saturating_sub(opened.rss_before_kib);
            Held {
                opened: opened.count,
                open_s: rounded(opened.seconds, 2),
                open_per_s: rounded(per(opened.count, opened.seconds), 0),
                lost: opened.lost,
                sample_bad: opened.wrong,
                rss_open_kb: opened.rss_kib,
                kib_per_open: rounded(float(grown) / float(opened.count), 2),
                cpu_ms_open: opened.cpu_ms,
            }
        });
        self
    }

    /// Nothing worked.
    pub(crate) fn is_useless(&self) -> bool {
        self.errors > 0 && self.count == 0
    }

    #[expect(clippy::print_stdout, reason = "what the program is for")]
    pub(crate) fn print(&self) {
        match serde_json::to_string(self) {
            Ok(line) => println!("{line}"),
            // Numbers and texts: there is nothing in it that JSON has no form for.
            Err(error) => println!("{{\"first_error\":\"{error}\"}}"),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "measured values have far fewer than 52 bits, and are rounded"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn per(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        float(count) / seconds
    } else {
        0.0
    }
}

fn rounded(number: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (number * scale).round() / scale
}

fn mean_us(latencies_ns: &[u64]) -> f64 {
    let count = latencies_ns.len().max(1) as u64;
    let sum: u64 = latencies_ns.iter().sum();
    rounded(float(sum) / float(count) / 1000.0, 1)
}

/// The latency that so many of a thousand are below, of latencies that are sorted.
fn quantile_us(latencies_ns: &[u64], per_mille: usize) -> f64 {
    let last = latencies_ns.len().saturating_sub(1);
    let place = (latencies_ns.len() * per_mille / 1000).min(last);
    let latency = latencies_ns.get(place).copied().unwrap_or_default();
    rounded(float(latency) / 1000.0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_values() {
        let latencies: Vec<u64> = (1..=1000).map(|us| us * 1000).collect();
        let of = |per_mille| quantile_us(&latencies, per_mille);
        let found = [of(500), of(990), of(1000), quantile_us(&[], 500)];
        let found = found.map(|us| us.to_string());
        assert_eq!(found, ["501", "991", "1000", "0"]);
        assert_eq!(mean_us(&[1000, 3000]).to_string(), "2");
    }
}
