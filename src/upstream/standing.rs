//! The stream on which a legacy server speaks unasked: one GET a session (2025-11-25 transports,
//! Listening for Messages from the Server).
//!
//! It is opened before the first call of its session and stays open until the session ends: a
//! question or a ping that the server does not tie to a call comes here and nowhere else, and some
//! servers end a session whose pings are not answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{OnceCell, oneshot};

use super::heard::{self, Heard, Message, Messages};
use super::http::RequestBody;
use super::message::{ambiguous, note, question, response};
use super::origin::Origin;
use super::port::{Answer, Event, UpstreamError};
use super::reconnect::{Reconnect, is_for_now};
use super::session::{Session, Unasked};
use crate::mcp::input::Kind;
use crate::mcp::json::Object;

/// How long the first call of a session waits for the stream: a server that says nothing of itself
/// yet takes the request all the same.
const OPENING: Duration = Duration::from_millis(300);

/// How long a server may take to take the request for a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// Hears the session until it ends. Resolves as soon as the server has said whether it has such a
/// stream, or after a moment. Cancel safe: the stream stays.
async fn open(session: &Arc<Session>) {
    let (opened, is_open) = oneshot::channel();
    let standing = Standing {
        origin: Arc::clone(session.origin()),
        session: Arc::downgrade(session),
        last_event_id: None,
        opened: Some(opened),
    };
    session.accompany(standing.run());
    let _ = tokio::time::timeout(OPENING, is_open).await;
}

/// The stream of a session of ours: whether it was asked for.
#[derive(Debug, Default)]
pub(super) struct OwnStream(OnceCell<()>);

#[async_trait]
impl Unasked for OwnStream {
    fn is_a_clients(&self) -> bool {
        false
    }

    async fn hear(&self, session: &Arc<Session>) {
        self.0.get_or_init(|| Box::pin(open(session))).await;
    }
}

struct Standing {
    origin: Arc<Origin>,
    /// Whoever holds a session keeps it from being closed.
    session: Weak<Session>,
    last_event_id: Option<HeaderValue>,
    /// Dropped when the server has answered.
    opened: Option<oneshot::Sender<()>>,
}

/// What became of a request for the stream.
enum Opened {
    Stream(Box<Messages>),
    Never,
    Later(Option<Duration>),
}

impl Standing {
    async fn run(mut self) {
        let mut reconnect = Reconnect::to_stream();
        loop {
            let opened = self.get().await;
            self.opened = None;
            match opened {
                Opened::Never => return,
                Opened::Later(asked) => reconnect.asked(asked),
                Opened::Stream(mut messages) => {
                    let heard_any = self.hear(&mut messages).await;
                    self.last_event_id = messages.last_event_id.take().or(self.last_event_id);
                    if heard_any {
                        reconnect.heard();
                    }
                    reconnect.asked(messages.retry);
                }
            }
            tokio::time::sleep(reconnect.pause()).await;
        }
    }

    async fn get(&self) -> Opened {
        let Some(session) = self.session.upgrade() else {
            return Opened::Never;
        };
        let request = session.get(self.last_event_id.as_ref());
        drop(session);
        let sent = self.origin.send(request, RequestBody::empty());
        let Ok(Ok(response)) = tokio::time::timeout(PATIENCE, sent).await else {
            return Opened::Later(None);
        };
        let status = response.status();
        match heard::judge(response, self.origin.message_bytes_max).await {
            Heard::Messages(messages) if messages.is_stream() => Opened::Stream(messages),
            Heard::Later(pause) => Opened::Later(Some(pause)),
            // Another stream of this session is still open there, or a gateway is away.
            _ if is_for_now(status) || status == StatusCode::CONFLICT => Opened::Later(None),
            // The server has none, or not for us.
            Heard::Messages(_) | Heard::Error(_) | Heard::Refused { .. } => Opened::Never,
        }
    }

    /// True if anything was said before the stream ended.
    async fn hear(&self, messages: &mut Messages) -> bool {
        let mut heard_any = false;
        while let Ok(Some(message)) = messages.next().await {
            heard_any = true;
            let Some(session) = self.session.upgrade() else {
                break;
            };
            self.on_message(&session, message).await;
        }
        heard_any
    }

    async fn on_message(&self, session: &Arc<Session>, message: Message) {
        let calls = session.calls();
        match message {
            Message::Primed => {}
            Message::Result { id, result } => calls.end(&id, Event::Result(result)),
            Message::Error { id, error } => {
                calls.end(&id, Event::Error(UpstreamError::in_message(error)))
            }
            Message::Unreadable { id, failure, .. } => calls.end(&id, Event::Failed(failure)),
            Message::Notification { method, params } => {
                note(&self.origin, &method);
                match (&*method, params) {
                    ("notifications/progress", Some(params)) => calls.progress(params),
                    ("notifications/message", Some(params)) => calls.log(params),
                    _ => {}
                }
            }
            Message::Request { id, method, params } => {
                if let Some(answer) = on_request(session, &id, &method, params) {
                    // A server that cannot be told will notice by itself.
                    let _ = session.tell(response(&id, &answer)).await;
                }
            }
        }
    }
}

/// What raincheck says itself; `None` where the client is asked.
fn on_request(
    session: &Session,
    id: &str,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Option<Answer> {
    let declared = Object::parse(session.declared()).unwrap_or_default();
    let may_ask = |kind: Kind| declared.contains(kind.capability());
    match question(id, method, params, may_ask) {
        Ok(question) => (!session.calls().ask(question)).then(ambiguous),
        Err(answer) => Some(answer),
    }
}
