//! How a line begins with a legacy server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::timeout;
use tracing::warn;

use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::flaw::Flaw;
use crate::mcp::json::{Object, string};
use crate::mcp::version::{Era, LEGACY_NEWEST};
use crate::upstream::discovery::discovered::Discovered;
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::initialize;
use crate::upstream::line::ask::{AskError, ask};
use crate::upstream::line::shared::SharedLine;
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::PoolKey;
use crate::upstream::port::UpstreamError;

/// The time that a server's handshake may take: `npx -y` may have to fetch it first.
pub(super) const START_PATIENCE: Duration = Duration::from_mins(1);

/// The line, after the handshake with a legacy server; a modern server has none.
pub(super) async fn agreed(
    line: Arc<SharedLine>,
    key: &PoolKey,
) -> Result<Arc<SharedLine>, SessionError> {
    if key.era == Era::Legacy {
        let shaken = timeout(START_PATIENCE, handshake(&line, &key.declared)).await;
        let shaken = shaken.unwrap_or_else(|_| Err(SessionError::Failed(silent(&line))));
        if let Err(why) = shaken {
            // A line without a handshake is of no use, and its process keeps a permit until it ends.
            line.close();
            return Err(why);
        }
    }
    Ok(line)
}

/// The end of a server that does not answer `initialize`. What it wrote in place of an answer may say why.
pub(super) fn silent(line: &SharedLine) -> Failure {
    let seconds = START_PATIENCE.as_secs();
    let wrote = line.writer().written().unwrap_or_default();
    warn!(
        seconds,
        wrote = &*wrote,
        "the server did not answer initialize"
    );
    UNREACHABLE.because(Flaw::Silent { seconds })
}

/// Sends `initialize` to a legacy server, and keeps what the server says of itself.
async fn handshake(line: &Arc<SharedLine>, declared: &str) -> Result<(), SessionError> {
    let invalid = || SessionError::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None));
    let asked = greet(line, declared).await;
    let result = asked.map_err(|why| match why {
        AskError::Error(error) => SessionError::Error(UpstreamError::in_message(error)),
        AskError::Refused(error) => SessionError::Error(error),
        AskError::Unsent | AskError::Failed(_) => SessionError::Failed(why.failure()),
    })?;
    complete(line, &result).await.ok_or_else(invalid)
}

/// Sends `initialize`, and once more if the refusal names an older revision.
pub(super) async fn greet(
    line: &Arc<SharedLine>,
    declared: &str,
) -> Result<Box<RawValue>, AskError> {
    let params = initialize::params(LEGACY_NEWEST, declared);
    let said = ask(line, "initialize", &params).await;
    let older = match &said {
        Err(AskError::Error(error)) => initialize::older(error.get()),
        Err(AskError::Refused(error)) => initialize::older(error.error.get()),
        Ok(_) | Err(AskError::Unsent | AskError::Failed(_)) => None,
    };
    match older {
        Some(version) => ask(line, "initialize", &initialize::params(version, declared)).await,
        None => said,
    }
}

/// Completes the handshake after the answer to `initialize`. `None`: that is no such answer.
pub(super) async fn complete(line: &Arc<SharedLine>, result: &RawValue) -> Option<()> {
    let object = Object::parse(result.get()).ok()?;
    object.get("protocolVersion").and_then(string)?;
    let described = Discovered::of_initialize(&object)?;
    // The first and only one.
    let _ = line.described.set(Arc::new(described));
    let ready = envelope::notification("notifications/initialized", "{}");
    line.tell(ready).await;
    Some(())
}
