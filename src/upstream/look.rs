//! A look at the server: whether it is there and answers as an MCP server does.

use std::time::Duration;

use tokio::time::timeout;

use crate::mcp::headers::SESSION_ID;
use crate::upstream::discovery::discovered::DiscoverError;
use crate::upstream::discovery::probe;
use crate::upstream::discovery::probe::Found;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::http::RequestBody;
use crate::upstream::http::origin::{FIRST_WORDS, Origin};
use crate::upstream::initialize;
use crate::upstream::initialize::InitializeError;
use crate::upstream::no_session::SessionError;
use crate::upstream::server::ServerTransport;
use crate::upstream::wrapped::Upstream;

/// The time that the end of a session may take.
const END: Duration = Duration::from_secs(5);

impl Upstream {
    /// Asks the server whether it is there and speaks MCP. The request has no credentials, and an error of JSON-RPC
    /// counts as an answer.
    pub async fn look(&self) -> Result<(), DiscoverError> {
        // Read first, because `era` may find out both, and then the server was asked a moment ago.
        let (before, was_decided) = (self.known_era(), self.is_decided());
        self.era(None).await?;
        let http_server = match self.transport() {
            ServerTransport::Posts(http_server) => http_server,
            // The era was found out over a line just now, so the server is there.
            ServerTransport::Lines(_) if before.is_none() => return Ok(()),
            ServerTransport::Lines(lines) => {
                let probed = lines.probe().await;
                return probed.map(drop).map_err(DiscoverError::from);
            }
        };
        if before.is_none() && !was_decided {
            // The server was asked a moment ago.
            return Ok(());
        }
        let origin = &http_server.origin;
        match probe::probe(origin, None).await? {
            Found::Era(_) | Found::Trouble => Ok(()),
            // Legacy servers refuse the probe in these ways, too. Only `initialize` shows that MCP is spoken.
            Found::NoPosts | Found::NoMessage | Found::Refused | Found::Failing(_) => {
                greet(origin).await
            }
        }
    }

    /// Resolves when the server gave an answer that no MCP server gives, since the last time.
    pub async fn suspected(&self) {
        self.known.suspicion.notified().await;
    }
}

/// Begins a legacy session and ends it.
async fn greet(origin: &Origin) -> Result<(), DiscoverError> {
    let greeting = timeout(FIRST_WORDS, initialize::post(origin, None, "{}"));
    let initialized = match greeting.await {
        Ok(Ok(initialized)) => initialized,
        Ok(Err(InitializeError::Error(error))) if !matches!(error.status, 401 | 403) => {
            return Ok(());
        }
        Ok(Err(why)) => return Err(SessionError::from(why).into()),
        Err(_elapsed) => return Err(DiscoverError::Failed(UNREACHABLE)),
    };
    if let Some(session) = initialized.session_id {
        let end = origin.delete(None).header(SESSION_ID, session);
        // If the server cannot be told, it forgets the session by itself.
        let _ = timeout(END, origin.send(end, RequestBody::empty())).await;
    }
    Ok(())
}
