//! Which era the server speaks, asked over a line on which nothing was said before: programs that speak
//! both keep to the era of the first message they hear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::super::failures::UNREACHABLE;
use super::super::no_session::NoSession;
use super::ask::ask;
use super::handshake::START_PATIENCE;
use super::pool::Pool;
use super::requests::Channel;
use super::said::Said;
use super::source::Source;
use super::spare::{Found, Spare};
use crate::mcp::error::Failure;
use crate::mcp::version::Era;
use crate::upstream::handshake;
use crate::upstream::initialize;
use crate::upstream::probe::{era_of_error, era_of_result};
use crate::upstream::translate;

/// A server that ignores what it does not know gets a handshake after this silence. The first call
/// waits for it.
const SILENCE: Duration = Duration::from_secs(3);

/// What a process was found to speak.
struct Word {
    era: Era,
    /// It was asked nothing else, so that others can go on with it.
    is_blank: bool,
}

/// Asks `server/discover`, of the spare process, which is started where there is none and stays for
/// whoever comes first. Whatever is no word of a modern server is one of a legacy server; over
/// HTTP+SSE no other is spoken to. Some legacy programs end at a first message that is no handshake.
pub(super) async fn probe(pool: &Pool) -> Result<Era, NoSession> {
    if matches!(pool.source, Source::Sse(_)) {
        return probe_anew(pool).await;
    }
    let mut turn = match pool.bench.to_ask().await {
        Found::Era(era) => return Ok(era),
        Found::ToAsk(turn) => turn,
    };
    let lobby = match turn.spare() {
        Some(spare) => spare.lobby,
        None => pool.start_lobby().await?,
    };
    let asked = ask_in_time(lobby.channel()).await;
    if let Ok(word) = &asked
        && word.is_blank
    {
        turn.put(Spare::new(lobby, Some(word.era)));
    } else {
        // Its place first: where it died, another one is asked.
        drop(turn);
        return judge(pool, lobby.channel(), asked).await;
    }
    Ok(asked?.era)
}

/// The same over a line of its own, whatever was asked before.
pub(super) async fn probe_anew(pool: &Pool) -> Result<Era, NoSession> {
    let permit = pool.permit().await?;
    let tools = Arc::clone(&pool.tools);
    let start = pool.source.start(permit, None, |mouth| {
        Channel::new(mouth, "{}".into(), tools)
    });
    let channel = start.await?;
    let asked = match &pool.source {
        Source::Program(_) => ask_in_time(&channel).await,
        Source::Sse(_) => Ok(Word {
            era: Era::Legacy,
            is_blank: false,
        }),
    };
    judge(pool, &channel, asked).await
}

async fn judge(
    pool: &Pool,
    channel: &Arc<Channel>,
    asked: Result<Word, Failure>,
) -> Result<Era, NoSession> {
    let has_died = !channel.is_open();
    channel.close();
    match asked {
        Err(died) if has_died => {
            // It may have died of the question: the next one counts.
            pool.source.health().forgive();
            let said = takes_sessions(pool).await;
            let is_legacy = said.is_some_and(handshake::Said::is_taken);
            is_legacy.then_some(Era::Legacy).ok_or_else(|| died.into())
        }
        asked => Ok(asked?.era),
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
    let params = initialize::params("{}");
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

async fn ask_in_time(channel: &Arc<Channel>) -> Result<Word, Failure> {
    let asked = timeout(START_PATIENCE, first_word(channel)).await;
    asked.map_err(|_| UNREACHABLE)?
}

/// A slow start is no silence: the time counts from when the program has read the question, where that
/// can be known. Both questions may wait in the pipe all the same, and a server answers the first that
/// it knows.
async fn first_word(channel: &Arc<Channel>) -> Result<Word, Failure> {
    let discover = translate::own_params("{}", &[]);
    let is_blank = AtomicBool::new(true);
    let discovered = async {
        let said = ask(channel, "server/discover", &discover).await;
        if matches!(said, Said::Failed(_)) && channel.is_open() {
            // What cannot be read says nothing of the era.
            std::future::pending::<()>().await;
        }
        said
    };
    let initialized = async {
        channel.mouth().was_read().await;
        tokio::time::sleep(SILENCE).await;
        is_blank.store(false, Ordering::Relaxed);
        ask(channel, "initialize", &initialize::params("{}")).await
    };
    let said = tokio::select! {
        said = discovered => said,
        said = initialized => said,
    };
    let era = match said {
        Said::Result(result) => era_of_result(&result),
        Said::Error(error) => era_of_error(&error),
        Said::Failed(_)
        | Said::Refused(_)
        | Said::Unsent(_)
        | Said::Progress(_)
        | Said::Log(_)
        | Said::Notice(_)
        | Said::Question(_) => return Err(UNREACHABLE),
    };
    Ok(Word {
        era,
        is_blank: is_blank.load(Ordering::Relaxed),
    })
}
