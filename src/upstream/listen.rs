//! Change notifications of the wrapped server, of either era, as one kind of stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use crate::base::unfold::Unfold;
use crate::mcp::changes::is_change;
use crate::mcp::envelope;
use crate::mcp::headers::METHOD;
use crate::mcp::headers::PROTOCOL_VERSION;
use crate::mcp::json::{Object, Writer};
use crate::mcp::version::{Era, MODERN};
use crate::upstream::credentials::Credentials;
use crate::upstream::http::RequestBody;
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response;
use crate::upstream::http_response::{Messages, ResponseKind};
use crate::upstream::message::note;
use crate::upstream::pool::PoolKey;
use crate::upstream::reconnect::Reconnect;
use crate::upstream::server_message::ServerMessage;
use crate::upstream::sessions::pool::{HttpSessionPool, SessionLease};
use crate::upstream::sessions::stream_attempt::{StreamAttempt, attempt};
use crate::upstream::translate;
use crate::upstream::wanted::WantedChanges;

/// The time that a subscription waits for the answer to its request for a stream. The client waits longer for
/// the acknowledgement.
const OPENING: Duration = Duration::from_secs(1);

/// A stream that was open for this long was no answer to one request.
const LASTING: Duration = Duration::from_secs(1);

/// An event that a listener receives from the server.
#[derive(Debug)]
pub enum ListenEvent {
    /// The first event: the part of the filter, as JSON, that the server will serve.
    Acknowledged(String),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
    /// The client may have missed changes.
    Missed,
    /// The last event: the server has ended the subscription. It may be asked again.
    Ended,
}

/// Cancel safe to poll; dropping it ends the subscription.
pub type Listening = BoxStream<'static, ListenEvent>;

/// The caller that listens, and the changes that it asks for.
pub(super) struct ListenRequest {
    pub(super) caller: [u8; 16],
    pub(super) credentials: Option<Credentials>,
    pub(super) capabilities: Arc<str>,
    pub(super) filter: Arc<str>,
}

pub(super) fn listen(
    origin: Arc<Origin>,
    sessions: Arc<HttpSessionPool>,
    era: Option<Era>,
    request: ListenRequest,
) -> Listening {
    HttpSubscription {
        origin,
        sessions,
        era,
        request,
        source: None,
        said: VecDeque::new(),
        over: false,
        is_silent: false,
        wanted: WantedChanges::default(),
    }
    .into_stream()
}

struct HttpSubscription {
    origin: Arc<Origin>,
    sessions: Arc<HttpSessionPool>,
    era: Option<Era>,
    request: ListenRequest,
    source: Option<OpenStream>,
    said: VecDeque<ListenEvent>,
    over: bool,
    /// The server sends no changes: it has no stream for them.
    is_silent: bool,
    /// The part of the request that a legacy server was found to serve.
    wanted: WantedChanges,
}

enum OpenStream {
    /// The stream of a request at a modern server. The subscription ends with it.
    Modern(Box<Messages>),
    Legacy(Box<SessionStream>),
}

/// The stream of a legacy session, which is requested again when it ends: the session has the subscriptions.
struct SessionStream {
    /// The session of this subscription, for as long as it is open.
    lease: SessionLease,
    state: StreamState,
    reconnect: Reconnect,
    last_event_id: Option<HeaderValue>,
    /// Since when the stream is open, or was last asked for.
    since: Instant,
    /// The client may miss changes while the stream is not open.
    has_gap: bool,
}

enum StreamState {
    Opening(BoxFuture<'static, StreamAttempt>),
    Open(Box<Messages>),
}

/// An event on a legacy session's stream, for the reader of the stream.
enum SessionNews {
    Message(ServerMessage),
    /// The stream is open again, and may not have what was sent meanwhile.
    Missed,
    /// The server has no such stream.
    Never,
    /// The server does not know the session any more.
    Lost,
}

impl SessionStream {
    fn new(lease: SessionLease) -> Self {
        let opening = attempt(&lease.session, None).boxed();
        Self {
            lease,
            state: StreamState::Opening(opening),
            reconnect: Reconnect::to_stream(),
            last_event_id: None,
            since: Instant::now(),
            has_gap: false,
        }
    }

    /// Waits a moment for the server to answer the first request for the stream. A server may hold back the head of
    /// the response until it has something to send. `Err`: there is no stream, or not now.
    async fn begun(&mut self) -> Result<(), StreamAttempt> {
        let StreamState::Opening(opening) = &mut self.state else {
            return Ok(());
        };
        match timeout(OPENING, opening).await {
            Err(_elapsed) => Ok(()),
            Ok(StreamAttempt::Stream(messages)) => {
                self.state = StreamState::Open(messages);
                Ok(())
            }
            Ok(refused) => Err(refused),
        }
    }

    async fn next(&mut self) -> SessionNews {
        loop {
            match &mut self.state {
                StreamState::Opening(opening) => match opening.await {
                    StreamAttempt::Stream(messages) => {
                        self.state = StreamState::Open(messages);
                        self.since = Instant::now();
                        if std::mem::take(&mut self.has_gap) {
                            return SessionNews::Missed;
                        }
                    }
                    StreamAttempt::Later(asked) => {
                        self.reconnect.asked(asked);
                        self.open_again();
                    }
                    StreamAttempt::Never => return SessionNews::Never,
                    StreamAttempt::Unknown => return SessionNews::Lost,
                },
                StreamState::Open(messages) => {
                    if let Ok(Some(message)) = messages.next().await {
                        self.reconnect.heard();
                        return SessionNews::Message(message);
                    }
                    // A stream that ends before its first id does not change the place from which to resume.
                    self.last_event_id = messages
                        .last_event_id
                        .take()
                        .or_else(|| self.last_event_id.take());
                    self.reconnect.asked(messages.retry);
                    // A server that ends its streams at once sends nothing between them that could be missed. One
                    // that gives ids to its events sends what was missed.
                    let lasted = Instant::now().saturating_duration_since(self.since);
                    self.has_gap |= lasted >= LASTING && self.last_event_id.is_none();
                    self.open_again();
                }
            }
        }
    }

    fn open_again(&mut self) {
        let pause = sleep(self.reconnect.pause());
        let attempt = attempt(&self.lease.session, self.last_event_id.as_ref());
        let opening = async {
            pause.await;
            attempt.await
        };
        self.state = StreamState::Opening(opening.boxed());
    }

    /// Answers the server's ping.
    async fn answer(&mut self, id: &str, method: &str) {
        if method == "ping" {
            // If the answer cannot be sent, the server will notice by itself.
            let _ = self.lease.session.tell(envelope::result(id, "{}")).await;
        }
    }
}

impl Unfold for HttpSubscription {
    type Item = ListenEvent;

    async fn next(&mut self) -> Option<ListenEvent> {
        if let Some(event) = self.said.pop_front() {
            return Some(event);
        }
        if self.over {
            return None;
        }
        if self.source.is_none() && !self.is_silent && self.open().await.is_none() {
            return Some(self.end());
        }
        loop {
            if let Some(event) = self.said.pop_front() {
                return Some(event);
            }
            if self.is_silent {
                // The subscription stays open without changes, because a client whose subscription ends asks for
                // another one.
                std::future::pending::<()>().await;
            }
            let message = match &mut self.source {
                None => return Some(self.end()),
                Some(OpenStream::Modern(messages)) => match messages.next().await {
                    Ok(Some(message)) => message,
                    Ok(None) | Err(_) => return Some(self.end()),
                },
                Some(OpenStream::Legacy(stream)) => match stream.next().await {
                    SessionNews::Message(message) => message,
                    SessionNews::Missed => return Some(ListenEvent::Missed),
                    SessionNews::Never => {
                        self.be_silent();
                        continue;
                    }
                    SessionNews::Lost => return Some(self.end()),
                },
            };
            match message {
                ServerMessage::Notification { method, params } => {
                    note(&self.origin, &method);
                    if let Some(event) = self.heard(&method, params) {
                        return Some(event);
                    }
                }
                // At a modern server the answer to the request is the end of the subscription.
                ServerMessage::Result { .. }
                | ServerMessage::Error { .. }
                | ServerMessage::Unreadable { .. } => {
                    return Some(self.end());
                }
                ServerMessage::Primed => {}
                ServerMessage::Request { id, method, .. } => {
                    if let Some(OpenStream::Legacy(stream)) = &mut self.source {
                        stream.answer(&id, &method).await;
                    }
                }
            }
        }
    }
}

impl HttpSubscription {
    /// The server has no stream, and a new session would have none either.
    fn be_silent(&mut self) {
        tracing::info!("the server has no stream for changes: clients do not hear of any");
        self.source = None;
        self.is_silent = true;
    }

    fn end(&mut self) -> ListenEvent {
        self.over = true;
        self.source = None;
        ListenEvent::Ended
    }

    fn heard(&self, method: &str, params: Option<Box<RawValue>>) -> Option<ListenEvent> {
        match method {
            "notifications/subscriptions/acknowledged" => {
                let params = params?;
                let honoured = Object::parse(params.get()).ok()?.get("notifications")?;
                Some(ListenEvent::Acknowledged(honoured.get().to_owned()))
            }
            change if is_change(change) => {
                // A modern server applies the filter itself. A legacy one sends its changes to every client.
                let is_modern = self.era == Some(Era::Modern);
                let hears = is_modern || self.wanted.hears(method, params.as_deref());
                hears.then(|| ListenEvent::Notification {
                    method: method.to_owned(),
                    params,
                })
            }
            // No other message belongs on such a stream.
            _ => None,
        }
    }

    async fn open(&mut self) -> Option<()> {
        match self.era? {
            Era::Modern => self.open_modern().await,
            Era::Legacy => self.open_legacy().await,
        }
    }

    async fn open_modern(&mut self) -> Option<()> {
        let capabilities = translate::without_tasks(&self.request.capabilities).ok()?;
        let params =
            translate::own_params(&capabilities, &[("notifications", &self.request.filter)]);
        let body = translate::request(&self.origin.next_id(), "subscriptions/listen", &params);
        let head = self
            .origin
            .post(self.request.credentials.as_ref())
            .header(PROTOCOL_VERSION, MODERN)
            .header(METHOD, "subscriptions/listen");
        let response = self.origin.send(head, RequestBody::json(body)).await.ok()?;
        match http_response::classify_response(response, self.origin.message_bytes_max).await {
            ResponseKind::Messages(messages) if messages.is_stream() => {
                self.source = Some(OpenStream::Modern(messages));
                Some(())
            }
            ResponseKind::Messages(_)
            | ResponseKind::Later(_)
            | ResponseKind::Error(_)
            | ResponseKind::Refused { .. } => None,
        }
    }

    async fn open_legacy(&mut self) -> Option<()> {
        // Nothing is declared on this session, so the server puts no question there, which no client could answer.
        let key = PoolKey::new(Era::Legacy, self.request.caller, "{}");
        let lease = self
            .sessions
            .open(&key, self.request.credentials.as_ref())
            .await
            .ok()?;
        let session = Arc::clone(&lease.session);
        let mut stream = SessionStream::new(lease);
        match stream.begun().await {
            Ok(()) => {}
            Err(StreamAttempt::Never | StreamAttempt::Unknown) => {
                let none = WantedChanges::default().honoured();
                self.said.push_back(ListenEvent::Acknowledged(none));
                self.be_silent();
                return Some(());
            }
            Err(StreamAttempt::Later(_) | StreamAttempt::Stream(_)) => return None,
        }
        let described = session.described()?;
        let mut wanted = WantedChanges::of(&self.request.filter, described.capabilities.get());
        let mut taken = Vec::new();
        for uri in wanted.uris.iter().flatten() {
            let mut params = Writer::object();
            params.str("uri", uri);
            let id = self.origin.next_id();
            let subscribe = translate::request(&id, "resources/subscribe", &params.end());
            // A resource that the server refuses is left out of the acknowledgement, and the others are still served.
            if session.tell(subscribe).await.is_ok() {
                taken.push(uri.clone());
            }
        }
        wanted.uris = wanted.uris.map(|_| taken);
        self.said
            .push_back(ListenEvent::Acknowledged(wanted.honoured()));
        self.wanted = wanted;
        self.source = Some(OpenStream::Legacy(Box::new(stream)));
        Some(())
    }
}
