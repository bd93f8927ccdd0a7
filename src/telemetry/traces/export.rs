//! Sends spans to the collector, a batch at a time. A collector that is away keeps no call waiting: its spans wait in
//! a bounded queue, and beyond that they are dropped and counted.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::grpc::{self, GrpcStatus};
use super::otlp;
use super::queue::{EndedSpans, SpanQueue, count};
use super::rejected::rejected;
use crate::base::backoff::after_ms;
use crate::base::io_reason::io_reason;
use crate::base::retry_after;
use crate::net::http_address::{HttpAddress, HttpAnswer};

/// The time within which the collector must answer a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// The first and the longest pause after a failure.
const PAUSE_MS: u64 = 1_000;
const PAUSE_MAX_MS: u64 = 30_000;

/// The answer of a collector is not read any further.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where spans go. Its headers may be secret.
pub struct Collector {
    pub address: HttpAddress,
    pub headers: HeaderMap,
    pub resource: TraceResource,
    /// Spans go over gRPC. Else over HTTP.
    pub is_grpc: bool,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

/// The description of the process that exports: names and texts.
pub type TraceResource = Vec<(String, String)>;

/// The result of sending a batch.
#[derive(Debug, PartialEq, Eq)]
enum SendOutcome {
    /// The collector has it, but for so many of its spans.
    Taken { rejected: u64 },
    /// The collector will never take it.
    Refused(CollectorStatus),
    /// The collector takes the batch later, perhaps at a time that it names.
    Later(CollectorStatus, Option<Duration>),
    /// The collector does not answer. Holds why.
    Away(String),
}

/// The status with which a collector does not take a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CollectorStatus {
    Http(StatusCode),
    Grpc(GrpcStatus),
}

impl fmt::Display for CollectorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(status) => write!(f, "HTTP {status}"),
            Self::Grpc(status) => status.fmt(f),
        }
    }
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
    // A batch that is on its way at the end goes on: sent again, it would be there twice.
    let exporting = async {
        loop {
            let _: Option<()> = stop.run_until_cancelled(queue.gather(&mut batch)).await;
            // What came meanwhile goes along.
            queue.take(&mut batch);
            let is_last = stop.is_cancelled();
            if batch.count == 0 && is_last {
                return;
            }
            if batch.count == 0 {
                continue;
            }
            let pause = state.send(&collector, &mut batch).await;
            match pause {
                // The collector answers, so another attempt before the end is worth its pause.
                Some(Pause::Asked(pause)) if is_last => tokio::time::sleep(pause).await,
                // A collector that does not answer must not keep the process alive.
                Some(Pause::Away(_)) if is_last => return,
                Some(Pause::Asked(pause) | Pause::Away(pause)) => {
                    let _: Option<()> = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                }
                None => {}
            }
        }
    };
    let ending = async {
        stop.cancelled().await;
        tokio::time::sleep(last).await;
    };
    tokio::select! {
        () = Box::pin(exporting) => {}
        () = ending => {}
    }
    settle("dropped", &mut batch);
    queue.drop_all();
}

/// The time that a batch waits that the collector did not take.
#[derive(Debug)]
enum Pause {
    /// The collector answers that it takes the batch later.
    Asked(Duration),
    Away(Duration),
}

/// The state of the collector, and the part of it that the log has reported.
#[derive(Debug, Default)]
struct ExportState {
    failures: u32,
}

impl ExportState {
    /// Sends the batch, or keeps it for the next attempt, after a pause.
    async fn send(&mut self, collector: &Collector, batch: &mut EndedSpans) -> Option<Pause> {
        match collector.send(batch).await {
            SendOutcome::Taken { rejected } => {
                if self.failures > 0 {
                    info!("the collector takes spans again");
                }
                self.failures = 0;
                let spans = batch.count as u64;
                // The number is the collector's own, and a larger one would underflow below.
                let rejected = rejected.min(spans);
                if rejected > 0 {
                    warn!(
                        spans = rejected,
                        "the collector refuses spans (telemetry.traces)"
                    );
                }
                count("refused", rejected);
                count("exported", spans - rejected);
                batch.clear();
                None
            }
            SendOutcome::Refused(status) => {
                warn!(%status, spans = batch.count, "the collector refuses spans (telemetry.traces)");
                // The collector answers, so its outage is over.
                self.failures = 0;
                settle("refused", batch);
                None
            }
            SendOutcome::Later(status, asked) => {
                let pause = self.failed(&status.to_string());
                // "At once", said again and again, must not be a busy loop.
                Some(Pause::Asked(
                    asked.map_or(pause, |asked| asked.max(pause / 8)),
                ))
            }
            SendOutcome::Away(why) => Some(Pause::Away(self.failed(&why))),
        }
    }

    /// One line for each outage, however long it is. Returns the pause before the next attempt.
    fn failed(&mut self, why: &str) -> Duration {
        if self.failures == 0 {
            warn!(
                why,
                "the collector does not take spans: they wait, and the oldest 4096 are kept (telemetry.traces)"
            );
        }
        self.failures = self.failures.saturating_add(1);
        Duration::from_millis(after_ms(self.failures, PAUSE_MS, PAUSE_MAX_MS))
    }
}

/// Counts what became of the batch, which is over.
fn settle(outcome: &str, batch: &mut EndedSpans) {
    count(outcome, batch.count as u64);
    batch.clear();
}

/// Sends an empty batch. The error contains the reason why the collector does not take it.
pub async fn probe(collector: &Collector) -> Result<(), String> {
    match collector.send(&EndedSpans::default()).await {
        SendOutcome::Taken { .. } => Ok(()),
        SendOutcome::Refused(status) | SendOutcome::Later(status, _) => Err(status.to_string()),
        SendOutcome::Away(why) => Err(why),
    }
}

impl Collector {
    async fn send(&self, spans: &EndedSpans) -> SendOutcome {
        let message = otlp::request(&self.resource, &spans.bytes);
        let request = if self.is_grpc {
            grpc::request(message)
        } else {
            Request::post(self.address.path())
                .header(CONTENT_TYPE, PROTOBUF)
                .body(Bytes::from(message))
        };
        let Ok(request) = request else {
            return SendOutcome::Refused(CollectorStatus::Http(StatusCode::BAD_REQUEST));
        };
        let mut request = request.map(Full::new);
        request.headers_mut().insert(USER_AGENT, AGENT);
        request.headers_mut().extend(self.headers.clone());
        let asking = async {
            if self.is_grpc {
                let asking = self.address.ask_http2(request, ANSWER_BYTES_MAX);
                Box::pin(asking).await
            } else {
                self.address.ask(request, ANSWER_BYTES_MAX).await
            }
        };
        match timeout(PATIENCE, asking).await {
            Ok(Ok(answer)) if self.is_grpc && answer.status.is_success() => of_grpc(&answer),
            Ok(Ok(answer)) => of_http(&answer),
            Ok(Err(error)) => SendOutcome::Away(io_reason(&error)),
            Err(_elapsed) => SendOutcome::Away("no answer within 10 s".to_owned()),
        }
    }
}

fn of_http(answer: &HttpAnswer) -> SendOutcome {
    let status = CollectorStatus::Http(answer.status);
    if answer.status.is_success() {
        SendOutcome::Taken {
            rejected: rejected(&answer.body),
        }
    } else if is_temporary(answer.status) {
        SendOutcome::Later(status, retry_after::pause(&answer.headers))
    } else {
        SendOutcome::Refused(status)
    }
}

fn of_grpc(answer: &HttpAnswer) -> SendOutcome {
    let Some(status) = GrpcStatus::of(&answer.headers) else {
        return SendOutcome::Away("what answers does not speak gRPC".to_owned());
    };
    if status == GrpcStatus::OK {
        SendOutcome::Taken {
            rejected: rejected(grpc::message(&answer.body)),
        }
    } else if status.is_temporary(&answer.headers) {
        SendOutcome::Later(CollectorStatus::Grpc(status), None)
    } else {
        SendOutcome::Refused(CollectorStatus::Grpc(status))
    }
}

/// Returns `true` for the statuses after which OTLP demands another attempt.
fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("raincheck/", env!("CARGO_PKG_VERSION")));

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::super::span::{Span, SpanKind};
    use super::*;
    use crate::mcp::trace_id::HexId;

    const LAST: Duration = Duration::from_mins(1);
    const TAKEN: &str = "200 OK";
    const LATER: &str = "503 Service Unavailable\r\nretry-after: 0";

    fn tell(queue: &SpanQueue) {
        queue.tell(&Span {
            trace: HexId::from_bytes([1; 16]),
            id: HexId::from_bytes([2; 8]),
            parent: None,
            state: None,
            name: ["ping", "", ""],
            kind: SpanKind::Server,
            begin_ns: 1,
            end_ns: 2,
            attributes: Vec::new(),
            link: None,
            is_error: false,
        });
    }

    /// A collector, and the way to it.
    async fn listening() -> (TcpListener, Collector) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let address = HttpAddress::new(&url.parse().unwrap(), None).unwrap();
        let collector = Collector {
            address,
            headers: HeaderMap::new(),
            resource: TraceResource::new(),
            is_grpc: false,
        };
        (listener, collector)
    }

    /// The connection of the next batch, once the batch has begun to come.
    async fn asked(listener: &TcpListener) -> TcpStream {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        assert!(read > 0, "a connection without a batch");
        stream
    }

    async fn answer(mut stream: TcpStream, with: &str) {
        let answer = format!("HTTP/1.1 {with}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    async fn is_asked_again(listener: &TcpListener) -> bool {
        timeout(Duration::ZERO, listener.accept()).await.is_ok()
    }

    #[tokio::test]
    async fn a_batch_on_its_way_when_the_process_ends_goes_out_once() {
        let (listener, collector) = listening().await;
        let (queue, stop) = (SpanQueue::default(), CancellationToken::new());
        tell(&queue);
        let collecting = async {
            let stream = asked(&listener).await;
            stop.cancel();
            // The exporter sees it before the answer.
            tokio::task::yield_now().await;
            answer(stream, TAKEN).await;
        };
        let exporting = export(collector, &queue, stop.clone(), LAST);
        let both = async { tokio::join!(exporting, collecting) };
        // A batch that is sent again gets no answer.
        let is_over = timeout(Duration::from_secs(5), both).await.is_ok();
        assert!(is_over && !is_asked_again(&listener).await);
    }

    #[tokio::test]
    async fn a_collector_that_says_later_is_asked_again_before_the_process_ends() {
        let (listener, collector) = listening().await;
        let (queue, stop) = (SpanQueue::default(), CancellationToken::new());
        tell(&queue);
        stop.cancel();
        let collecting = async {
            answer(asked(&listener).await, LATER).await;
            answer(asked(&listener).await, TAKEN).await;
        };
        let exporting = export(collector, &queue, stop, LAST);
        let both = timeout(Duration::from_secs(5), async {
            tokio::join!(exporting, collecting)
        });
        both.await.unwrap();
    }

    #[tokio::test]
    async fn a_collector_that_says_when_is_asked_then() {
        let (listener, collector) = listening().await;
        let (queue, stop) = (SpanQueue::default(), CancellationToken::new());
        tell(&queue);
        let collecting = async {
            answer(asked(&listener).await, LATER).await;
            let refused = Instant::now();
            answer(asked(&listener).await, TAKEN).await;
            stop.cancel();
            Instant::now().saturating_duration_since(refused)
        };
        let exporting = export(collector, &queue, stop.clone(), LAST);
        let (took, ()) = tokio::join!(collecting, exporting);
        assert!(took < Duration::from_millis(PAUSE_MS), "{took:?}");
    }
}
