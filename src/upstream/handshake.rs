//! Whether a modern server takes sessions of legacy clients, too: asked once, with an `initialize` of
//! our own. What a client's own `initialize` is answered with may say something of the client only.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderValue;

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

impl Upstream {
    /// Whether the server is known to be modern and nothing else: it refuses the sessions of legacy
    /// clients. Who does not say is asked again.
    pub async fn refuses_sessions(&self, credentials: Option<&HeaderValue>) -> bool {
        if self.known_era() != Some(Era::Modern) {
            return false;
        }
        let asked = self.takes_sessions.get_or_try_init(|| async {
            let taken = match self.server.way() {
                Way::Posts(web) => is_taken(&web.origin, credentials).await,
                Way::Lines(lines) => lines.takes_sessions().await,
            };
            let taken = taken.ok_or(())?;
            if !taken {
                tracing::info!("the upstream takes no sessions: legacy clients have theirs here");
            }
            Ok::<_, ()>(taken)
        });
        asked.await.is_ok_and(|taken| !taken)
    }
}

/// `None`: it did not say. A session that it begins is ended.
async fn is_taken(origin: &Origin, credentials: Option<&HeaderValue>) -> Option<bool> {
    let asked = tokio::time::timeout(PATIENCE, ask(origin, credentials)).await;
    asked.ok().flatten()
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

async fn ask(origin: &Origin, credentials: Option<&HeaderValue>) -> Option<bool> {
    let body = translate::request(&origin.next_id(), "initialize", &params());
    let sent = origin.send(origin.post(credentials), RequestBody::json(body));
    let response = sent.await.ok()?;
    let session = response.headers().get(SESSION_ID).cloned();
    let mut messages = match heard::judge(response, origin.message_bytes_max).await {
        Heard::Messages(messages) => messages,
        Heard::Error(error) => return refuses(StatusCode::from_u16(error.status).ok()?),
        Heard::Refused { status, .. } => return refuses(status),
        Heard::Later(_) => return None,
    };
    loop {
        match messages.next().await.ok()?? {
            Message::Result { .. } => break,
            Message::Error { error, .. } => {
                // Of a server in trouble nothing is known.
                let code = result::error_code(&error);
                return (code != Some(code::INTERNAL)).then_some(false);
            }
            Message::Primed | Message::Request { .. } | Message::Notification { .. } => {}
        }
    }
    if let Some(session) = session {
        let end = origin.delete(credentials).header(SESSION_ID, session);
        // A server that cannot be told forgets it by itself.
        let _ = origin.send(end, RequestBody::empty()).await;
    }
    Some(true)
}

/// What is about credentials or load says nothing of sessions.
fn refuses(status: StatusCode) -> Option<bool> {
    let about_else = matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    );
    (status.is_client_error() && !about_else).then_some(false)
}
