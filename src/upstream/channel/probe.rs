//! Which era the server speaks, asked over a line that is thrown away: programs that speak both keep
//! to the era of the first message they hear.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::UNREACHABLE;
use super::exchange::ask;
use super::pool::{Pool, START_PATIENCE};
use super::requests::{Channel, Said};
use super::source::Source;
use crate::mcp::error::Failure;
use crate::mcp::version::Era;
use crate::upstream::handshake;
use crate::upstream::probe::{era_of_error, era_of_result};
use crate::upstream::sessions::NoSession;
use crate::upstream::translate;

/// A server that ignores what it does not know gets a handshake after this silence. The first call
/// waits for it.
const SILENCE: Duration = Duration::from_secs(3);

/// Asks `server/discover`. Whatever is no word of a modern server is one of a legacy server; over
/// HTTP+SSE no other is spoken to. Some legacy programs end at a first message that is no handshake.
pub(super) async fn probe(pool: &Pool) -> Result<Era, NoSession> {
    let permit = pool.permit().await?;
    let tools = Arc::clone(&pool.tools);
    let start = pool.source.start(permit, None, |mouth| {
        Channel::new(mouth, "{}".into(), tools)
    });
    let channel = start.await?;
    let asked = match &pool.source {
        Source::Program(_) => timeout(START_PATIENCE, first_word(&channel)).await,
        Source::Sse(_) => Ok(Ok(Era::Legacy)),
    };
    let has_died = !channel.is_open();
    channel.close();
    match asked.map_err(|_| UNREACHABLE)? {
        Err(died) if has_died => {
            // It may have died of the question: the next one counts.
            pool.source.health().forgive();
            let said = takes_sessions(pool).await;
            let is_legacy = said.is_some_and(handshake::Said::is_taken);
            is_legacy.then_some(Era::Legacy).ok_or_else(|| died.into())
        }
        asked => Ok(asked?),
    }
}

/// Asks `initialize`, of a program that was asked something else before: it may speak both eras, and
/// keep to the one that it hears first.
pub(super) async fn takes_sessions(pool: &Pool) -> Option<handshake::Said> {
    let permit = pool.permit().await.ok()?;
    let tools = Arc::clone(&pool.tools);
    let start = pool.source.start(permit, None, |mouth| {
        Channel::new(mouth, "{}".into(), tools)
    });
    let channel = start.await.ok()?;
    let params = handshake::params();
    let asked = timeout(START_PATIENCE, ask(&channel, "initialize", &params)).await;
    channel.close();
    match asked.ok()? {
        Said::Result(_) => Some(handshake::Said::Taken),
        Said::Error(error) => handshake::refused(&error),
        Said::Failed(_)
        | Said::Refused(_)
        | Said::Unsent(_)
        | Said::Progress(_)
        | Said::Log(_)
        | Said::Notice(_)
        | Said::Question(_) => None,
    }
}

/// A slow start is no silence: both questions wait in the pipe, and a server answers the first
/// that it knows.
async fn first_word(channel: &Arc<Channel>) -> Result<Era, Failure> {
    let discover = translate::own_params("{}", &[]);
    let discovered = async {
        let said = ask(channel, "server/discover", &discover).await;
        if matches!(said, Said::Failed(_)) && channel.is_open() {
            // What cannot be read says nothing of the era.
            std::future::pending::<()>().await;
        }
        said
    };
    let initialized = async {
        tokio::time::sleep(SILENCE).await;
        ask(channel, "initialize", &handshake::params()).await
    };
    let said = tokio::select! {
        said = discovered => said,
        said = initialized => said,
    };
    match said {
        Said::Result(result) => Ok(era_of_result(&result)),
        Said::Error(error) => Ok(era_of_error(&error)),
        Said::Failed(_)
        | Said::Refused(_)
        | Said::Unsent(_)
        | Said::Progress(_)
        | Said::Log(_)
        | Said::Notice(_)
        | Said::Question(_) => Err(UNREACHABLE),
    }
}
