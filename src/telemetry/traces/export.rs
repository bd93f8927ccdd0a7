//! Sends spans to the collector, a batch at a time. A collector that is away keeps no call waiting: its spans wait in
//! a bounded queue, and beyond that they are dropped and counted.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::otlp;
use super::queue::{EndedSpans, SpanQueue, count};
use crate::http_address::HttpAddress;
use crate::io_reason::io_reason;

/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a failure. It doubles with each further failure.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The answer of a collector is not read any further.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans go. Its headers may be secret.
pub struct Collector {
    pub address: HttpAddress,
    pub headers: HeaderMap,
    pub resource: TraceResource,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

/// What is told of the process that exports: names and texts.
pub type TraceResource = Vec<(String, String)>;

/// What came of a batch.
#[derive(Debug, PartialEq, Eq)]
enum SendOutcome {
    Taken,
    /// The collector will never take it.
    Refused(StatusCode),
    /// The collector may take it later. Holds why.
    NotNow(String),
}

/// Exports until `stop`, and then what still waits, for at most `last`.
pub async fn export(
    collector: Collector,
    queue: &SpanQueue,
    stop: CancellationToken,
    last: Duration,
) {
    let mut state = ExportState::default();
    let mut batch = EndedSpans::default();
    let exporting = async {
        loop {
            queue.gather(&mut batch).await;
            if batch.count > 0 {
                state.send(&collector, &mut batch).await;
            }
        }
    };
    let _: Option<()> = Box::pin(stop.run_until_cancelled(exporting)).await;
    let until = Instant::now() + last;
    loop {
        // What came meanwhile goes along.
        queue.take(&mut batch);
        if batch.count == 0 {
            return;
        }
        let sending = timeout_at(until, collector.send(&batch)).await;
        let is_taken = matches!(sending, Ok(SendOutcome::Taken));
        settle(if is_taken { "exported" } else { "dropped" }, &mut batch);
        if !is_taken {
            return queue.drop_all();
        }
    }
}

/// Whether the collector takes spans, and what the log was told of that.
#[derive(Debug, Default)]
struct ExportState {
    failures: u32,
}

impl ExportState {
    /// Sends the batch, or waits for the next attempt and keeps it.
    async fn send(&mut self, collector: &Collector, batch: &mut EndedSpans) {
        match collector.send(batch).await {
            SendOutcome::Taken => {
                if self.failures > 0 {
                    info!("the collector takes spans again");
                }
                self.failures = 0;
                settle("exported", batch);
            }
            SendOutcome::Refused(status) => {
                warn!(%status, spans = batch.count, "the collector refuses spans (telemetry.traces)");
                self.failures = 0;
                settle("refused", batch);
            }
            SendOutcome::NotNow(why) => {
                // One line for each outage, however long it is.
                if self.failures == 0 {
                    warn!(
                        why,
                        "the collector does not take spans: they wait, and the oldest 4096 are kept (telemetry.traces)"
                    );
                }
                let doubled = PAUSE * 2_u32.saturating_pow(self.failures.min(5));
                self.failures = self.failures.saturating_add(1);
                tokio::time::sleep(doubled.min(PAUSE_MAX)).await;
            }
        }
    }
}

/// Counts what became of the batch, which is over.
fn settle(outcome: &str, batch: &mut EndedSpans) {
    count(outcome, batch);
    batch.clear();
}

/// Sends an empty batch. The error says why the collector does not take it.
pub async fn probe(collector: &Collector) -> Result<(), String> {
    match collector.send(&EndedSpans::default()).await {
        SendOutcome::Taken => Ok(()),
        SendOutcome::Refused(status) => Err(format!("HTTP {status}")),
        SendOutcome::NotNow(why) => Err(why),
    }
}

impl Collector {
    async fn send(&self, spans: &EndedSpans) -> SendOutcome {
        let body = otlp::request(&self.resource, &spans.bytes);
        let request = Request::post(self.address.path())
            .header(CONTENT_TYPE, PROTOBUF)
            .header(USER_AGENT, AGENT)
            .body(Full::new(Bytes::from(body)));
        let Ok(mut request) = request else {
            return SendOutcome::Refused(StatusCode::BAD_REQUEST);
        };
        request.headers_mut().extend(self.headers.clone());
        match timeout(PATIENCE, self.address.ask(request, ANSWER_BYTES_MAX)).await {
            Ok(Ok(answer)) if answer.status.is_success() => SendOutcome::Taken,
            Ok(Ok(answer)) if is_temporary(answer.status) => {
                SendOutcome::NotNow(format!("HTTP {}", answer.status))
            }
            Ok(Ok(answer)) => SendOutcome::Refused(answer.status),
            Ok(Err(error)) => SendOutcome::NotNow(io_reason(&error)),
            Err(_elapsed) => SendOutcome::NotNow("no answer within 10 s".to_owned()),
        }
    }
}

/// The statuses after which OTLP says to try again.
fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

const AGENT: &str = concat!("raincheck/", env!("CARGO_PKG_VERSION"));
