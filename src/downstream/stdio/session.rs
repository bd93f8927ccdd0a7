//! A legacy client's session. The client knows of none: it is opened by its `initialize`, and again
//! when the server has lost it.

use std::sync::MutexGuard;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::sync::Notify;

use super::answer::answer_to;
use super::letter::{Letter, parts, plain_headers};
use crate::downstream::body::Body;
use crate::downstream::dispatch;
use crate::downstream::inbound::request::Inbound;
use crate::downstream::legacy;
use crate::downstream::proxy::Shared;
use crate::lock::Mutex;
use crate::mcp::headers::{PROTOCOL_VERSION, SESSION_ID};
use crate::mcp::json::Object;

/// How long a message without an answer may take to be taken; later ones wait for it, because their
/// order counts.
pub(super) const TELL: Duration = Duration::from_secs(10);

/// A refusal larger than this is not read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// How long the server may take to agree anew, and others wait for that: as long as at first, when
/// `npx -y` may have to fetch it.
const RENEW_PATIENCE: Duration = Duration::from_mins(1);

/// How long the server may take to end a session.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What the client's session is at the server.
#[derive(Default)]
pub(super) struct Session {
    agreed: Mutex<Agreed>,
    /// One renews it for all.
    renewing: tokio::sync::Mutex<()>,
    renewed: Notify,
}

#[derive(Default, Clone)]
struct Agreed {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// What the client said, to say it again.
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

impl Session {
    fn agreed_now(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock()
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.agreed_now().headers()
    }

    /// Posts a message; the answer, and the session that it names.
    pub(super) async fn post(
        &self,
        front: &Shared,
        letter: &Letter,
    ) -> (Response<Body>, Option<HeaderValue>) {
        let is_handshake = letter.method.as_deref() == Some("initialize");
        let headers = if is_handshake {
            plain_headers()
        } else {
            self.headers()
        };
        let sent_on = headers.get(SESSION_ID).cloned();
        let response = post(front, parts(Method::POST, headers), &letter.text).await;
        let (response, is_lost) = match &sent_on {
            Some(_) => look_for_loss(response).await,
            None => (response, false),
        };
        if is_lost && self.renew(front, sent_on.as_ref()).await {
            let again = parts(Method::POST, self.headers());
            return (post(front, again, &letter.text).await, None);
        }
        let named = response.headers().get(SESSION_ID).cloned();
        (response, named)
    }

    /// What the server answered to `initialize`.
    pub(super) fn agreed(&self, answer: &str, letter: &Letter, id: Option<HeaderValue>) {
        if let Some(version) = version_of(answer) {
            *self.agreed_now() = Agreed {
                id,
                version: Some(version),
                initialize: Some(letter.text.clone()),
                initialized: None,
            };
        }
    }

    pub(super) fn keep_initialized(&self, text: Bytes) {
        self.agreed_now().initialized = Some(text);
    }

    /// A new session instead of one that the server lost: what the client said at its beginning is
    /// said again. False where there is none: the lost one stays, and the next request tries again.
    async fn renew(&self, front: &Shared, lost: Option<&HeaderValue>) -> bool {
        let turn = tokio::time::timeout(RENEW_PATIENCE, self.renewing.lock());
        let Ok(_one) = turn.await else {
            return false;
        };
        let before = self.agreed_now().clone();
        if before.id.as_ref() != lost {
            return true;
        }
        let Some(initialize) = before.initialize.clone() else {
            return false;
        };
        let opening = tokio::time::timeout(RENEW_PATIENCE, open(front, initialize));
        let Ok(Some(id)) = opening.await else {
            return false;
        };
        let agreed = Agreed {
            id: Some(id),
            ..before
        };
        if let Some(initialized) = agreed.initialized.clone() {
            let told = post(front, parts(Method::POST, agreed.headers()), &initialized);
            drop(tokio::time::timeout(TELL, told).await);
        }
        *self.agreed_now() = agreed;
        self.renewed.notify_one();
        true
    }

    /// Resolves when a lost session was opened again. For one who waits.
    pub(super) async fn renewed(&self) {
        self.renewed.notified().await;
    }

    pub(super) async fn end(&self, front: &Shared) {
        if self.agreed_now().id.is_some() {
            let ending = legacy::other(front, parts(Method::DELETE, self.headers()));
            let _ = tokio::time::timeout(END_PATIENCE, ending).await;
        }
    }
}

/// Posts a message as a client over HTTP would.
async fn post(front: &Shared, parts: Parts, text: &Bytes) -> Response<Body> {
    dispatch::post(front, parts, text, Inbound::read(text)).await
}

/// The session that the server opens. `None`: it does not agree, which raincheck, too, says with 200.
async fn open(front: &Shared, initialize: Bytes) -> Option<HeaderValue> {
    let request = Letter::read(&initialize)?.id?;
    let response = post(front, parts(Method::POST, plain_headers()), &initialize).await;
    let id = response.headers().get(SESSION_ID).cloned()?;
    let answer = answer_to(response, &request).await?;
    // What it says was told once; only that it agrees counts.
    let agrees = Object::parse(&answer).is_ok_and(|answer| answer.contains("result"));
    agrees.then_some(id)
}

/// Whether the response says that the server has no such session: 404, or 400 in many words. What was
/// read of it is put back.
async fn look_for_loss(response: Response<Body>) -> (Response<Body>, bool) {
    if response.status() != StatusCode::BAD_REQUEST {
        let is_lost = response.status() == StatusCode::NOT_FOUND;
        return (response, is_lost);
    }
    let (head, body) = response.into_parts();
    let read = Limited::new(body, ERROR_BYTES_MAX).collect().await;
    let bytes = read.map(Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let is_lost = text.contains("session") || text.contains("not initialized");
    (Response::from_parts(head, Body::ready(bytes)), is_lost)
}

fn version_of(answer: &str) -> Option<HeaderValue> {
    let result = Object::parse(answer).ok()?.get_object("result")?;
    let version = result.get_str("protocolVersion")?;
    HeaderValue::try_from(&*version).ok()
}
