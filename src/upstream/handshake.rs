//! Whether a modern server takes sessions of legacy clients, too: asked with an `initialize` of
//! our own, and again after a while. What a client's own `initialize` is answered with may say something of the client only.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::heard::{self, Heard, Message};
use super::http::RequestBody;
use super::origin::Origin;
use super::server::Way;
use super::translate;
use super::wrapped::Upstream;
use crate::mcp::error::code;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Writer;
use crate::mcp::result;
use crate::mcp::version::{Era, LEGACY_NEWEST};

/// A server that does not answer in this time is asked again by the next client.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server that answered in words of MCP is asked again after this: it may be another one by then.
const REMEMBERED: Duration = Duration::from_mins(10);

/// A refusal without such words may be a gateway's.
const BELIEVED: Duration = Duration::from_secs(30);

/// What a server last said of sessions, and how long that is believed.
#[derive(Debug)]
pub(super) struct Sessions {
    said: Mutex<Option<(Said, Instant)>>,
    asking: Semaphore,
}

/// What the answer to an `initialize` says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    pub(super) is_taken: bool,
    believed: Duration,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            said: Mutex::default(),
            asking: Semaphore::new(1),
        }
    }
}

impl Sessions {
    pub(super) fn forget(&self) {
        *self.said() = None;
    }

    fn said(&self) -> MutexGuard<'_, Option<(Said, Instant)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is believed now.
    fn fresh(&self) -> Option<bool> {
        let now = Instant::now();
        let (said, at) = (*self.said())?;
        (now.saturating_duration_since(at) < said.believed).then_some(said.is_taken)
    }

    fn note(&self, said: Said) {
        let before = self.said().replace((said, Instant::now()));
        if !said.is_taken && before.is_none_or(|(before, _)| before.is_taken) {
            tracing::info!("the upstream takes no sessions: legacy clients have theirs here");
        }
    }
}

impl Upstream {
    /// Whether the server is known to be modern and nothing else: it refuses the sessions of legacy
    /// clients. Who does not say is asked again, and believed to be as before.
    pub async fn refuses_sessions(&self, credentials: Option<&HeaderValue>) -> bool {
        if self.known_era() != Some(Era::Modern) {
            return false;
        }
        let sessions = &self.known.sessions;
        if let Some(is_taken) = sessions.fresh() {
            return !is_taken;
        }
        // By one of all who want to know.
        let asking = sessions.asking.acquire().await;
        if asking.is_ok() && sessions.fresh().is_none() {
            let said = match self.server.way() {
                Way::Posts(web) => is_taken(&web.origin, credentials).await,
                Way::Lines(lines) => lines.takes_sessions().await.map(in_words),
            };
            if let Some(said) = said {
                sessions.note(said);
            }
        }
        let said = *sessions.said();
        said.is_some_and(|(said, _)| !said.is_taken)
    }
}

/// `None`: it did not say. A session that it begins is ended.
pub(super) async fn is_taken(origin: &Origin, credentials: Option<&HeaderValue>) -> Option<Said> {
    let asked = tokio::time::timeout(PATIENCE, ask(origin, credentials)).await;
    asked.ok().flatten()
}

fn in_words(is_taken: bool) -> Said {
    Said {
        is_taken,
        believed: REMEMBERED,
    }
}

/// The params of an `initialize` of raincheck's own.
pub(super) fn params() -> String {
    let mut params = Writer::object();
    params
        .str("protocolVersion", LEGACY_NEWEST)
        .raw("capabilities", "{}")
        .raw("clientInfo", &translate::client_info());
    params.end()
}

async fn ask(origin: &Origin, credentials: Option<&HeaderValue>) -> Option<Said> {
    let body = translate::request(&origin.next_id(), "initialize", &params());
    let sent = origin.send(origin.post(credentials), RequestBody::json(body));
    let response = sent.await.ok()?;
    let session = response.headers().get(SESSION_ID).cloned();
    let mut messages = match heard::judge(response, origin.message_bytes_max).await {
        Heard::Messages(messages) => messages,
        Heard::Error(error) => {
            let is_about_it = StatusCode::from_u16(error.status).is_ok_and(is_about_it);
            return is_about_it.then(|| refused(&error.error)).flatten();
        }
        Heard::Refused { status, .. } => {
            let said = Said {
                is_taken: false,
                believed: BELIEVED,
            };
            return is_about_it(status).then_some(said);
        }
        Heard::Later(_) => return None,
    };
    loop {
        match messages.next().await.ok()?? {
            Message::Result { .. } => break,
            Message::Error { error, .. } => return refused(&error),
            Message::Primed | Message::Request { .. } | Message::Notification { .. } => {}
        }
    }
    if let Some(session) = session {
        let end = origin.delete(credentials).header(SESSION_ID, session);
        // A server that cannot be told forgets it by itself.
        let _ = origin.send(end, RequestBody::empty()).await;
    }
    Some(in_words(true))
}

/// What is about credentials or load says nothing of sessions.
fn is_about_it(status: StatusCode) -> bool {
    let is_about_else = matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    );
    status.is_client_error() && !is_about_else
}

/// What an error says: of a server in trouble nothing is known, and a code of its own may mean anything.
fn refused(error: &RawValue) -> Option<Said> {
    let code = result::error_code(error)?;
    let believed = match code {
        code::INTERNAL => return None,
        code::METHOD_NOT_FOUND
        | code::INVALID_PARAMS
        | code::INVALID_REQUEST
        | code::HEADER_MISMATCH
        | code::MISSING_CLIENT_CAPABILITY
        | code::UNSUPPORTED_VERSION => REMEMBERED,
        _ => BELIEVED,
    };
    Some(Said {
        is_taken: false,
        believed,
    })
}
