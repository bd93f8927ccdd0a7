//! The wrapped server over HTTP+SSE, the transport of revision 2024-11-05. Everything that the server sends comes on
//! one event stream. Everything that is sent to the server is a POST to the endpoint that the stream names first. The
//! line ends with the stream.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use hyper::Uri;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};
use url::Url;

mod events;
mod overlong;
mod poster;

use crate::upstream::credentials::{Credentials, LatestCredentials};
use crate::upstream::sse::events::{SseEvents, SseItem};
use crate::upstream::sse::poster::Poster;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::failures::OTHER_ORIGIN;
use crate::upstream::http::RequestBody;
use crate::upstream::http::cookies::Cookies;
use crate::upstream::http::origin::Origin;
use crate::upstream::http::same_origin;
use crate::upstream::http_response;
use crate::upstream::http_response::ResponseKind;
use crate::upstream::line::health::LineHealth;
use crate::upstream::line::overlong::too_large;
use crate::upstream::line::writer::{LineEnd, LineListener, LineWriter, Outbound, Yielder};
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::SessionPermit;
use crate::upstream::server_message;

/// The time that a server may take to open a stream and to name its endpoint there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause before a new stream, where the last ones ended quickly.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The parts that all lines to one server have in common.
#[derive(Debug)]
pub(super) struct Dialer {
    origin: Arc<Origin>,
    /// The address of the stream.
    url: Url,
    pub(super) services: TaskTracker,
    health: Arc<Mutex<LineHealth>>,
    /// Ends every line.
    pub(super) stop: CancellationToken,
}

impl Dialer {
    /// `None` if no endpoint could be resolved against the URL.
    pub(super) fn new(origin: Arc<Origin>, url: &Uri, services: TaskTracker) -> Option<Self> {
        let url = Url::parse(&url.to_string()).ok()?;
        url.has_host().then(|| Self {
            origin,
            url,
            services,
            health: Arc::default(),
            stop: CancellationToken::new(),
        })
    }

    /// The health of the server. Do not hold the guard across other work.
    pub(super) fn health(&self) -> MutexGuard<'_, LineHealth> {
        self.health.lock()
    }

    /// Opens a line, which keeps the permit until its stream has ended. Waits if the last streams ended
    /// quickly. If the future is dropped, the stream is closed.
    pub(super) async fn start<E: LineListener>(
        &self,
        permit: SessionPermit,
        credentials: Option<&Credentials>,
        listener: impl FnOnce(LineWriter) -> Arc<E>,
    ) -> Result<Arc<E>, SessionError> {
        let pause = self.health().pause(Instant::now()).min(PAUSE_MAX);
        tokio::time::sleep(pause).await;
        let (events, endpoint, cookies) = self.dial(credentials).await?;
        let credentials = LatestCredentials::new(credentials);
        let (stop, health) = (self.stop.child_token(), Arc::clone(&self.health));
        let (writer, outbound) = LineWriter::new(stop, health, credentials.clone());
        let listener = listener(writer.clone());
        let poster = Poster {
            origin: Arc::clone(&self.origin),
            endpoint,
            credentials,
            cookies,
            listener: Arc::clone(&listener),
        };
        let life = SseLine {
            events,
            poster,
            writer,
            services: self.services.clone(),
            _permit: permit,
        };
        self.services.spawn(life.run(outbound));
        Ok(listener)
    }

    /// A stream, the endpoint for its messages, and the cookies that go with them.
    pub(super) async fn dial(
        &self,
        credentials: Option<&Credentials>,
    ) -> Result<(SseEvents, Uri, Cookies), SessionError> {
        let dialled = timeout(PATIENCE, self.dial_patiently(credentials)).await;
        dialled.map_err(|_| unsent(Reason::UpstreamUnreachable))?
    }

    async fn dial_patiently(
        &self,
        credentials: Option<&Credentials>,
    ) -> Result<(SseEvents, Uri, Cookies), SessionError> {
        let request = self.origin.get(credentials);
        let response = self.origin.send(request, RequestBody::empty()).await;
        let response = response.map_err(not_sent)?;
        let cookies = Cookies::set_by(response.headers(), || self.origin.url());
        let bytes_max = self.origin.message_bytes_max;
        let mut events = match http_response::classify_response(response, bytes_max).await {
            ResponseKind::Messages(messages) if messages.is_stream() => {
                SseEvents::new(messages.into_body(), bytes_max)
            }
            ResponseKind::Messages(_) => return Err(unsent(Reason::UpstreamInvalid)),
            ResponseKind::Error(error) => return Err(SessionError::Error(error)),
            ResponseKind::Later(later) => return Err(not_sent(later.failure)),
            ResponseKind::Refused { failure, .. } => return Err(not_sent(failure)),
        };
        loop {
            let event = match events.next().await {
                Ok(SseItem::Event(event)) => event,
                // Such an event answers a request of JSON-RPC, and the endpoint comes in an event of another name.
                Ok(SseItem::TooLarge(_)) => continue,
                Err(_) => return Err(unsent(Reason::UpstreamInvalid)),
            };
            if event.event.as_deref() != Some("endpoint") {
                continue;
            }
            let Some(endpoint) = same_origin::resolve(&self.url, &event.data) else {
                // The text is not logged, because it may be another server's address.
                warn!("the server names an endpoint at another origin, or none: it is not used");
                return Err(SessionError::Failed(OTHER_ORIGIN));
            };
            return Ok((events, endpoint, cookies));
        }
    }
}

fn unsent(reason: Reason) -> SessionError {
    not_sent(Failure::new(reason, SideEffect::None))
}

fn not_sent(failure: Failure) -> SessionError {
    SessionError::Failed(failure.with_effect(SideEffect::None))
}

/// One line, from its endpoint to its end.
struct SseLine<E> {
    events: SseEvents,
    poster: Poster<E>,
    writer: LineWriter,
    services: TaskTracker,
    _permit: SessionPermit,
}

impl<E: LineListener> SseLine<E> {
    async fn run(mut self, outbound: mpsc::Receiver<Outbound>) {
        let born = Instant::now();
        let listener = Arc::clone(&self.poster.listener);
        let stop = self.writer.stopping().clone();
        let closing = stop.child_token();
        // A job of its own: a server may acknowledge a POST only after its answer, which comes on the stream.
        let posting = closing
            .clone()
            .run_until_cancelled_owned(self.poster.run(outbound));
        self.services.spawn(posting);
        let reading = read(&mut self.events, &*listener);
        let end = stop.run_until_cancelled(reading).await;
        let end = end.unwrap_or(LineEnd::Stopped);
        // This comes before a caller hears of the end and wants another line.
        if end == LineEnd::Stopped {
            debug!("an event stream of the server was closed");
        } else {
            self.writer.ended(born);
            debug!(?end, "an event stream of the server ended");
        }
        listener.over(end);
        closing.cancel();
    }
}

/// Reads messages until the stream ends. Events that are no message are skipped.
async fn read(events: &mut SseEvents, listener: &impl LineListener) -> LineEnd {
    let mut yielder = Yielder::default();
    loop {
        let event = match events.next().await {
            Ok(SseItem::Event(event)) => event,
            Ok(SseItem::TooLarge(id)) => {
                listener.heard(too_large(id), "");
                continue;
            }
            Err(end) => return end,
        };
        if !event.is_message() || event.data.is_empty() {
            continue;
        }
        let batch = server_message::batch(&event.data);
        for text in batch.unwrap_or_else(|| [event.data].into()) {
            if let Ok(message) = server_message::read(&text) {
                listener.heard(message, &text);
                yielder.heard(listener).await;
            } else {
                debug!("an unreadable event of the server was ignored");
            }
        }
    }
}
