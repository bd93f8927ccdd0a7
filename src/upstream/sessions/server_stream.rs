//! The stream on which a legacy server sends messages of its own: one GET for each session (2025-11-25
//! transports, Listening for Messages from the Server). It is opened before the first call of its session and
//! stays open until the session ends. A question or a ping that the server does not tie to a call comes only
//! here, and some servers end a session whose pings are not answered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::{OnceCell, oneshot};

use crate::mcp::input::InputKind;
use crate::mcp::json::Object;
use crate::upstream::http::origin::Origin;
use crate::upstream::http_response::Messages;
use crate::upstream::message::{ambiguous, note, question, response};
use crate::upstream::port::{Answer, Event, UpstreamError};
use crate::upstream::reconnect::Reconnect;
use crate::upstream::server_message::ServerMessage;
use crate::upstream::sessions::session::{ServerSession, Unasked};
use crate::upstream::sessions::stream_attempt::{StreamAttempt, attempt};

/// The time that the first call of a session waits for the stream. A server may hold back the head of the
/// response until it has something to send.
const OPENING: Duration = Duration::from_millis(300);

/// The time that a server may take to accept the request for a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens the stream, and reads it until the session ends. Resolves when the server has answered whether it has such a
/// stream, or after a moment. Cancel safe: the stream stays.
async fn open(session: &Arc<ServerSession>) {
    let (opened, is_open) = oneshot::channel();
    let standing = ServerStream {
        origin: Arc::clone(session.origin()),
        session: Arc::downgrade(session),
        last_event_id: None,
        opened: Some(opened),
    };
    session.accompany(standing.run());
    let _ = tokio::time::timeout(OPENING, is_open).await;
}

/// The stream of a session of raincheck's: whether it was requested.
#[derive(Debug, Default)]
pub(in crate::upstream) struct OwnStream(OnceCell<()>);

#[async_trait]
impl Unasked for OwnStream {
    fn is_a_clients(&self) -> bool {
        false
    }

    async fn hear(&self, session: &Arc<ServerSession>) {
        self.0.get_or_init(|| Box::pin(open(session))).await;
    }
}

struct ServerStream {
    origin: Arc<Origin>,
    /// Weak, because a session is closed when its last holder drops it.
    session: Weak<ServerSession>,
    last_event_id: Option<HeaderValue>,
    /// Dropped when the server has answered.
    opened: Option<oneshot::Sender<()>>,
}

impl ServerStream {
    async fn run(mut self) {
        let mut reconnect = Reconnect::to_stream();
        loop {
            let opened = self.get().await;
            self.opened = None;
            match opened {
                StreamAttempt::Never | StreamAttempt::Unknown => return,
                StreamAttempt::Later(asked) => reconnect.asked(asked),
                StreamAttempt::Stream(mut messages) => {
                    let heard_any = self.hear(&mut messages).await;
                    self.last_event_id = messages.last_event_id.take().or(self.last_event_id);
                    // A server that ends its streams without a message is asked after longer and longer pauses.
                    if heard_any {
                        reconnect.heard();
                    }
                    reconnect.asked(messages.retry);
                }
            }
            tokio::time::sleep(reconnect.pause()).await;
        }
    }

    async fn get(&self) -> StreamAttempt {
        // A session that nothing holds any more has ended, so its stream is not opened again.
        let Some(session) = self.session.upgrade() else {
            return StreamAttempt::Never;
        };
        let attempt = attempt(&session, self.last_event_id.as_ref());
        // Released before the wait, because a server may take long to answer, and the session may have to end
        // meanwhile.
        drop(session);
        let attempt = tokio::time::timeout(PATIENCE, attempt).await;
        attempt.unwrap_or(StreamAttempt::Later(None))
    }

    /// Reads the stream to its end. Returns `true` if any message was received before.
    async fn hear(&self, messages: &mut Messages) -> bool {
        let mut heard_any = false;
        let _open = self.session.upgrade().map(|it| it.calls().opened());
        while let Ok(Some(message)) = messages.next().await {
            heard_any = true;
            let Some(session) = self.session.upgrade() else {
                break;
            };
            self.on_message(&session, message).await;
            let full = session.calls().full();
            // Not held during the wait for a slow reader, so that the session can end.
            drop(session);
            if let Some(full) = full {
                full.await;
            }
        }
        heard_any
    }

    async fn on_message(&self, session: &Arc<ServerSession>, message: ServerMessage) {
        let calls = session.calls();
        match message {
            ServerMessage::Primed => {}
            ServerMessage::Result { id, result } => calls.end(&id, Event::Result(result)),
            ServerMessage::Error { id, error } => {
                calls.end(&id, Event::Error(UpstreamError::in_message(error)));
            }
            ServerMessage::Unreadable { id, failure, .. } => calls.end(&id, Event::Failed(failure)),
            ServerMessage::Notification { method, params } => {
                note(&self.origin, &method);
                match (&*method, params) {
                    ("notifications/progress", Some(params)) => calls.progress(params),
                    ("notifications/message", Some(params)) => calls.log(params),
                    _ => {}
                }
            }
            ServerMessage::Request { id, method, params } => {
                if let Some(answer) = on_request(session, &id, &method, params) {
                    // If the answer cannot be sent, the server will notice by itself.
                    let _ = session.tell(response(&id, &answer)).await;
                }
            }
        }
    }
}

/// The answer that raincheck gives itself. `None` if the client is asked.
fn on_request(
    session: &ServerSession,
    id: &str,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Option<Answer> {
    let declared = Object::parse(session.declared()).unwrap_or_default();
    let may_ask = |kind: InputKind| declared.contains(kind.capability());
    match question(id, method, params, may_ask) {
        Ok(question) => (!session.calls().ask(question)).then(ambiguous),
        Err(answer) => Some(answer),
    }
}
