//! Finds out which era a server over lines speaks. The line must be new: programs that speak both eras keep to
//! the era of the first message that they read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tracing::info;

use crate::mcp::error::Failure;
use crate::mcp::version::Era;
use crate::upstream::discovery::legacy_sessions;
use crate::upstream::discovery::probe::{era_of_error, era_of_result};
use crate::upstream::line::ask::{AskError, ask};
use crate::upstream::line::handshake;
use crate::upstream::line::handshake::{START_PATIENCE, silent};
use crate::upstream::line::pool::LinePool;
use crate::upstream::line::shared::SharedLine;
use crate::upstream::line::source::LineSource;
use crate::upstream::line::spare::{Heard, ProbeTurn, Spare};
use crate::upstream::no_session::SessionError;
use crate::upstream::translate;

/// A server that does not answer `server/discover` for this long is sent `initialize`. The first call waits for
/// it.
const SILENCE: Duration = Duration::from_secs(3);

/// The protocol that a process was found to speak.
struct ProbeAnswer {
    era: Era,
    /// The use of the process for a caller.
    heard: Option<Heard>,
}

/// Sends `server/discover` to the spare process, which is started if there is none and stays for the first
/// caller. A server that does not answer as a modern one is legacy; a server over HTTP+SSE is always legacy.
/// Some legacy programs end when their first message is not `initialize`.
pub(super) async fn probe(pool: &LinePool) -> Result<Era, SessionError> {
    if matches!(pool.source, LineSource::Sse(_)) {
        return probe_anew(pool).await;
    }
    let mut turn = match pool.spare_place.to_ask().await {
        ProbeTurn::Era(era) => return Ok(era),
        ProbeTurn::ToAsk(turn) => turn,
    };
    let handover = match turn.spare() {
        Some(spare) => spare.handover,
        None => pool.start_process().await?,
    };
    let asked = ask_in_time(pool, handover.line()).await;
    if let Ok(word) = &asked
        && let Some(heard) = word.heard.clone()
    {
        turn.put(Spare::new(handover, Some(word.era), heard));
    } else {
        // The place must be free first: if the process died, another one is started there.
        drop(turn);
        return end_probe(pool, handover.line(), asked).await;
    }
    Ok(asked?.era)
}

/// Finds out the era over a new line, whatever was found out before.
pub(super) async fn probe_anew(pool: &LinePool) -> Result<Era, SessionError> {
    // This line is raincheck's own, so it counts on no caller's share.
    let permit = pool.permit(None).await?;
    let tools = Arc::clone(&pool.tools);
    let start = pool.source.start(permit, None, |writer| {
        SharedLine::new(writer, "{}".into(), tools)
    });
    let line = start.await?;
    let asked = match &pool.source {
        LineSource::Program(_) => ask_in_time(pool, &line).await,
        LineSource::Sse(_) => Ok(ProbeAnswer {
            era: Era::Legacy,
            heard: None,
        }),
    };
    end_probe(pool, &line, asked).await
}

async fn end_probe(
    pool: &LinePool,
    line: &Arc<SharedLine>,
    asked: Result<ProbeAnswer, Failure>,
) -> Result<Era, SessionError> {
    let has_died = !line.is_open();
    line.close();
    match asked {
        Err(died) if has_died => {
            // The program may have died of the question, so that this death does not count.
            pool.source.health().forgive();
            let said = takes_sessions(pool).await;
            if said.is_some_and(legacy_sessions::SessionsAnswer::is_taken) {
                // The log has a warning about that process.
                info!(
                    "the server ends at server/discover and answers initialize, so it is a legacy one"
                );
                Ok(Era::Legacy)
            } else {
                Err(died.into())
            }
        }
        asked => Ok(asked?.era),
    }
}

/// Sends `initialize` to a new process. A program that speaks both eras may keep to the first one that it
/// reads, so the process that has read `server/discover` cannot be used.
pub(super) async fn takes_sessions(pool: &LinePool) -> Option<legacy_sessions::SessionsAnswer> {
    let permit = pool.permit(None).await.ok()?;
    let tools = Arc::clone(&pool.tools);
    let start = pool.source.start(permit, None, |writer| {
        SharedLine::new(writer, "{}".into(), tools)
    });
    let line = start.await.ok()?;
    let asked = timeout(START_PATIENCE, handshake::greet(&line, "{}")).await;
    line.close();
    match asked.ok()? {
        Ok(_) => Some(legacy_sessions::SessionsAnswer::Taken),
        Err(AskError::Error(error)) => legacy_sessions::refused(&error),
        Err(AskError::Refused(_) | AskError::Unsent | AskError::Failed(_)) => None,
    }
}

async fn ask_in_time(pool: &LinePool, line: &Arc<SharedLine>) -> Result<ProbeAnswer, Failure> {
    let asked = timeout(START_PATIENCE, first_word(pool, line)).await;
    asked.map_err(|_| silent(line))?
}

/// Sends `server/discover`, and `initialize` if the server stays silent. The silence is counted from when the
/// program has read the first message, if that can be known, because a slow start is no silence. If both
/// messages wait in the pipe, the server answers the first that it knows.
async fn first_word(pool: &LinePool, line: &Arc<SharedLine>) -> Result<ProbeAnswer, Failure> {
    let discover = translate::own_params("{}", &[]);
    let is_blank = AtomicBool::new(true);
    let discovered = async {
        let said = ask(line, "server/discover", &discover).await;
        if matches!(said, Err(AskError::Failed(_))) && line.is_open() {
            // An answer that cannot be read does not tell the era.
            std::future::pending::<()>().await;
        }
        said
    };
    let initialized = async {
        line.writer().was_read().await;
        tokio::time::sleep(SILENCE).await;
        // Before the message is written, because from here on the process may have read it.
        is_blank.store(false, Ordering::Relaxed);
        let declared = pool.expected();
        let said = handshake::greet(line, &declared).await;
        (said, declared)
    };
    let (said, declared) = tokio::select! {
        said = discovered => (said, None),
        (said, declared) = initialized => (said, Some(declared)),
    };
    let (era, result) = match said {
        Ok(result) => (era_of_result(&result), Some(result)),
        Err(AskError::Error(error)) => (era_of_error(&error), None),
        Err(why @ (AskError::Refused(_) | AskError::Unsent | AskError::Failed(_))) => {
            return Err(why.failure());
        }
    };
    let heard = match (&result, declared) {
        _ if is_blank.load(Ordering::Relaxed) => Some(Heard::Nothing),
        // A server that has begun a session is used for it: another start may take long.
        (Some(result), Some(declared)) if era == Era::Legacy => {
            let agreed = handshake::complete(line, result).await;
            agreed.map(|()| Heard::Initialize(declared))
        }
        (Some(_) | None, _) => None,
    };
    Ok(ProbeAnswer { era, heard })
}
