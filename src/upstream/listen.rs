//! Change notifications of the wrapped server, of either era, as one kind of stream.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::value::RawValue;

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
use crate::upstream::server_message::ServerMessage;
use crate::upstream::sessions::pool::{HttpSessionPool, SessionLease};
use crate::upstream::translate;
use crate::upstream::wanted::WantedChanges;

/// What the wrapped server says to a listener.
#[derive(Debug)]
pub enum ListenEvent {
    /// The first event: the part of the filter, as JSON, that the server will serve.
    Acknowledged(String),
    Notification {
        method: String,
        params: Option<Box<RawValue>>,
    },
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
    let subscription = HttpSubscription {
        origin,
        sessions,
        era,
        request,
        source: None,
        said: VecDeque::new(),
        over: false,
        wanted: WantedChanges::default(),
    };
    stream::unfold(subscription, |mut subscription| async {
        let event = subscription.next().await?;
        Some((event, subscription))
    })
    .boxed()
}

struct HttpSubscription {
    origin: Arc<Origin>,
    sessions: Arc<HttpSessionPool>,
    era: Option<Era>,
    request: ListenRequest,
    source: Option<OpenStream>,
    said: VecDeque<ListenEvent>,
    over: bool,
    /// What a legacy server was found to serve of the request.
    wanted: WantedChanges,
}

struct OpenStream {
    messages: Box<Messages>,
    /// The legacy session of this subscription, for as long as it is open.
    lease: Option<SessionLease>,
}

impl HttpSubscription {
    async fn next(&mut self) -> Option<ListenEvent> {
        if let Some(event) = self.said.pop_front() {
            return Some(event);
        }
        if self.over {
            return None;
        }
        if self.source.is_none() && self.open().await.is_none() {
            return Some(self.end());
        }
        loop {
            if let Some(event) = self.said.pop_front() {
                return Some(event);
            }
            let Some(source) = &mut self.source else {
                return Some(self.end());
            };
            let Ok(Some(message)) = source.messages.next().await else {
                return Some(self.end());
            };
            match message {
                ServerMessage::Notification { method, params } => {
                    note(&self.origin, &method);
                    if let Some(event) = self.heard(&method, params) {
                        return Some(event);
                    }
                }
                ServerMessage::Result { .. }
                | ServerMessage::Error { .. }
                | ServerMessage::Unreadable { .. } => {
                    return Some(self.end());
                }
                ServerMessage::Primed => {}
                ServerMessage::Request { id, method, .. } => self.on_request(&id, &method).await,
            }
        }
    }

    /// Answers the ping of a legacy server.
    async fn on_request(&self, id: &str, method: &str) {
        let lease = self
            .source
            .as_ref()
            .and_then(|source| source.lease.as_ref());
        if let Some(lease) = lease
            && method == "ping"
        {
            // If the answer cannot be sent, the server will notice by itself.
            let _ = lease.session.tell(envelope::result(id, "{}")).await;
        }
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
                self.source = Some(OpenStream {
                    messages,
                    lease: None,
                });
                Some(())
            }
            ResponseKind::Messages(_)
            | ResponseKind::Later(_)
            | ResponseKind::Error(_)
            | ResponseKind::Refused { .. } => None,
        }
    }

    async fn open_legacy(&mut self) -> Option<()> {
        let key = PoolKey::new(Era::Legacy, self.request.caller, "{}");
        let lease = self
            .sessions
            .open(&key, self.request.credentials.as_ref())
            .await
            .ok()?;
        let session = Arc::clone(&lease.session);
        let response = self
            .origin
            .send(session.get(None), RequestBody::empty())
            .await
            .ok()?;
        session.heard(&response);
        let ResponseKind::Messages(messages) =
            http_response::classify_response(response, self.origin.message_bytes_max).await
        else {
            return None;
        };
        let described = session.described()?;
        let mut wanted = WantedChanges::of(&self.request.filter, described.capabilities.get());
        let mut taken = Vec::new();
        for uri in wanted.uris.iter().flatten() {
            let mut params = Writer::object();
            params.str("uri", uri);
            let id = self.origin.next_id();
            let subscribe = translate::request(&id, "resources/subscribe", &params.end());
            if session.tell(subscribe).await.is_ok() {
                taken.push(uri.clone());
            }
        }
        wanted.uris = wanted.uris.map(|_| taken);
        self.said
            .push_back(ListenEvent::Acknowledged(wanted.honoured()));
        self.wanted = wanted;
        self.source = Some(OpenStream {
            messages,
            lease: Some(lease),
        });
        Some(())
    }
}
