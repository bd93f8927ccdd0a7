//! The session of a legacy client over stdio, of which the client knows nothing. Its `initialize` opens the session,
//! and raincheck opens it again when the server has lost it.

use std::sync::Arc;
use std::sync::MutexGuard;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::Body as _;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response};
use tokio::sync::Notify;
use uuid::Uuid;

use super::answer::{answer_to, is_stream};
use super::message::{StdioMessage, parts, plain_headers};
use crate::base::lock::Mutex;
use crate::downstream::body::Body;
use crate::downstream::dispatch::{self, RequestClient};
use crate::downstream::durations::{Answered, Asked};
use crate::downstream::inbound::connection_polls::ConnectionPolls;
use crate::downstream::inbound::request::Inbound;
use crate::downstream::inbound::requester::OwnConnection;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::proxy::Proxy;
use crate::downstream::sessions;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;
use crate::upstream::http::SessionRefusal;

/// Upper bound of the time that a message without an answer takes. Later messages wait for it, because their order
/// counts.
pub(super) const TELL: Duration = Duration::from_secs(10);

/// The largest refusal that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Upper bound of the time in which the server opens a lost session again, while other messages wait: as long as the
/// first time, when `npx -y` may have to fetch the server.
const RENEW_PATIENCE: Duration = Duration::from_mins(1);

/// Upper bound of the time in which the server ends a session.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The client's session at the server.
pub(super) struct StdioSession {
    /// Names the connection, by which the client's calls are listed.
    key: SessionKey,
    agreed: Mutex<Agreed>,
    /// One request renews the session for all.
    renewing: tokio::sync::Mutex<()>,
    renewed: Notify,
    /// All requests of the client share its line.
    polls: ConnectionPolls,
}

#[derive(Default, Clone)]
struct Agreed {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The client's `initialize`, to send it again.
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
}

impl Agreed {
    fn headers(&self) -> HeaderMap {
        let mut headers = plain_headers();
        if let Some(id) = &self.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(version) = &self.version {
            headers.insert(PROTOCOL_VERSION, version.clone());
        }
        headers
    }
}

impl StdioSession {
    pub(super) fn new(key: SessionKey) -> Self {
        Self {
            key,
            agreed: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
            renewed: Notify::new(),
            polls: ConnectionPolls::default(),
        }
    }

    fn agreed_now(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock()
    }

    /// Returns `true` if the client has opened a session.
    pub(super) fn has_agreed(&self) -> bool {
        self.agreed_now().version.is_some()
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.agreed_now().headers()
    }

    /// The head of a message of the client.
    pub(super) fn parts(&self, headers: HeaderMap) -> Box<Parts> {
        let mut parts = parts(Method::POST, headers);
        parts.extensions.insert(self.polls.clone());
        parts.extensions.insert(OwnConnection(self.key));
        parts
    }

    /// Posts a message, and returns the response and the session that the response names.
    pub(super) async fn post(
        &self,
        proxy: &Arc<Proxy>,
        sent: &StdioMessage,
    ) -> (Response<Body>, Option<HeaderValue>) {
        // A handshake begins a session, so it must not name the one before.
        let headers = if sent.is_handshake() {
            plain_headers()
        } else {
            self.headers()
        };
        let sent_on = headers.get(SESSION_ID).cloned();
        let response = post(proxy, self.parts(headers), &sent.text).await;
        let (response, refusal) = match &sent_on {
            Some(_) => look_for_loss(response).await,
            None => (response, None),
        };
        let is_lost = match refusal {
            // A session that is lost has nothing that could be cancelled.
            Some(refusal) if sent.cancels.is_none() => self.is_lost(proxy, &refusal).await,
            Some(_) | None => false,
        };
        if is_lost && self.renew(proxy, sent_on.as_ref()).await {
            // Safe to send again, because the refusal proves that the server ran nothing.
            let again = self.parts(self.headers());
            return (post(proxy, again, &sent.text).await, None);
        }
        let named = response.headers().get(SESSION_ID).cloned();
        (response, named)
    }

    /// Returns `true` if a message that was refused with this refusal did nothing, because the server has lost the
    /// session. Words that prove nothing by themselves are not a tool's if a ping is refused in the same words.
    async fn is_lost(&self, proxy: &Arc<Proxy>, refusal: &SessionRefusal) -> bool {
        if refusal.is_certain(true) {
            return true;
        }
        let id = Uuid::new_v4();
        let ping = format!(r#"{{"jsonrpc":"2.0","id":"raincheck/{id}","method":"ping"}}"#).into();
        let pinging = post(proxy, self.parts(self.headers()), &ping);
        let Ok(response) = tokio::time::timeout(TELL, pinging).await else {
            return false;
        };
        look_for_loss(response).await.1.as_ref() == Some(refusal)
    }

    /// Remembers the server's answer to `initialize`.
    pub(super) fn agreed(&self, answer: &str, sent: &StdioMessage, id: Option<HeaderValue>) {
        if let Some(version) = version_of(answer) {
            *self.agreed_now() = Agreed {
                id,
                version: Some(version),
                initialize: Some(sent.text.clone()),
                // The client sends this notification for the new session itself, once it has the answer.
                initialized: None,
            };
        }
    }

    pub(super) fn keep_initialized(&self, text: Bytes) {
        self.agreed_now().initialized = Some(text);
    }

    /// Opens a new session in place of one that the server lost, with the client's own `initialize`. False: the
    /// server did not agree, and the next request tries again.
    async fn renew(&self, proxy: &Arc<Proxy>, lost: Option<&HeaderValue>) -> bool {
        let turn = tokio::time::timeout(RENEW_PATIENCE, self.renewing.lock());
        let Ok(_one) = turn.await else {
            return false;
        };
        let before = self.agreed_now().clone();
        // Another request opened a new session while this one waited for its turn.
        if before.id.as_ref() != lost {
            return true;
        }
        let Some(initialize) = before.initialize.clone() else {
            return false;
        };
        let opening = tokio::time::timeout(RENEW_PATIENCE, open(proxy, initialize));
        let Ok(Some(id)) = opening.await else {
            return false;
        };
        let agreed = Agreed {
            id: Some(id),
            ..before
        };
        // Before other requests use the session, because MCP begins normal operation with this notification.
        if let Some(initialized) = agreed.initialized.clone() {
            let told = post(proxy, parts(Method::POST, agreed.headers()), &initialized);
            drop(tokio::time::timeout(TELL, told).await);
        }
        *self.agreed_now() = agreed;
        // Keeps a permit for a stream that begins to wait only later.
        self.renewed.notify_one();
        true
    }

    /// Resolves when a lost session was opened again. Only one task may wait.
    pub(super) async fn renewed(&self) {
        self.renewed.notified().await;
    }

    pub(super) async fn end(&self, proxy: &Arc<Proxy>) {
        if self.agreed_now().id.is_some() {
            let ending = sessions::other(proxy, parts(Method::DELETE, self.headers()), None);
            // A server that does not answer must not delay the end of the process.
            let _ = tokio::time::timeout(END_PATIENCE, ending).await;
        }
    }
}

/// Posts a message as a client over HTTP would.
async fn post(proxy: &Arc<Proxy>, parts: Box<Parts>, text: &Bytes) -> Response<Body> {
    answered(
        dispatch::post(
            proxy,
            parts,
            RequestClient::default(),
            text,
            Inbound::read(text),
        )
        .await,
    )
}

/// The response, with its measurement.
pub(super) fn answered((response, asked): Answered) -> Response<Body> {
    match asked {
        Some(asked) => asked.on(response),
        None => response,
    }
}

/// Opens a session. `None`: the server did not agree, which it may report with status 200.
async fn open(proxy: &Arc<Proxy>, initialize: Bytes) -> Option<HeaderValue> {
    let request = StdioMessage::read(&initialize)?.id?;
    let mut response = post(proxy, parts(Method::POST, plain_headers()), &initialize).await;
    let _measured = Asked::of(&mut response);
    let id = response.headers().get(SESSION_ID).cloned()?;
    let answer = answer_to(response, &request).await?;
    // The client knows the answer from the first time: only whether the server agrees counts.
    let agrees = Object::parse(&answer).is_ok_and(|answer| answer.contains("result"));
    agrees.then_some(id)
}

/// Returns the report of the response about the session, if it is a refusal. The response is returned with its body.
async fn look_for_loss(response: Response<Body>) -> (Response<Body>, Option<SessionRefusal>) {
    let status = response.status();
    let may_be = match status.as_u16() {
        400 | 401 | 404 | 410 | 500 => true,
        // Of any other answer only one is read that is short, as refusals are.
        _ => !is_stream(&response) && response.body().size_hint().exact().is_some_and(is_short),
    };
    if !may_be {
        return (response, None);
    }
    let (head, body) = response.into_parts();
    let read = Limited::new(body, ERROR_BYTES_MAX).collect().await;
    let bytes = read.map(Collected::to_bytes).unwrap_or_default();
    let refusal = SessionRefusal::of_body(status, &String::from_utf8_lossy(&bytes));
    (Response::from_parts(head, Body::ready(bytes)), refusal)
}

fn is_short(length: u64) -> bool {
    usize::try_from(length).is_ok_and(|length| length <= ERROR_BYTES_MAX)
}

fn version_of(answer: &str) -> Option<HeaderValue> {
    let result = Object::parse(answer).ok()?.get_object("result")?;
    let version = result.get_str("protocolVersion")?;
    HeaderValue::try_from(&*version).ok()
}
