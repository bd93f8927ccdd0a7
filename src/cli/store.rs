//! `raincheck store move`: gives the tasks of a namespace to the same server at another address.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::failure::CommandFailure;
use super::process::runtime;
use super::stdout::print;
use crate::app::{StoreMoved, move_store};
use crate::config::Config;

pub(super) fn move_to(
    config: &Config,
    by_force: bool,
    as_json: bool,
) -> Result<ExitCode, CommandFailure> {
    let moving = move_store(config, by_force);
    let moved = runtime()?.block_on(moving);
    let moved = moved.map_err(|error| CommandFailure::runtime(error.to_string()))?;
    let MoveTold {
        outcome,
        sentence,
        is_done,
    } = told(config, &moved);
    // A script that asked for JSON gets it on standard output also then, and the exit code shows the failure.
    if !is_done && !as_json {
        return Err(CommandFailure::runtime(sentence));
    }
    let text = if as_json {
        let found = json!({
            "outcome": outcome,
            "from": from(&moved),
            "to": config.upstream.server.service(),
            "replicas": replicas(&moved),
            "text": sentence,
        });
        format!("{found}\n")
    } else {
        format!("{sentence}\n")
    };
    print(text)?;
    Ok(ExitCode::from(u8::from(!is_done)))
}

/// The report on a move.
struct MoveTold {
    outcome: &'static str,
    sentence: String,
    /// The server of these settings may serve over the store.
    is_done: bool,
}

fn told(config: &Config, moved: &StoreMoved) -> MoveTold {
    let store = config.store.location.to_string();
    let server = config.upstream.server.service();
    let (outcome, sentence) = match moved {
        StoreMoved::Nameless => (
            "nameless",
            format!(
                "{store}: only a namespace in Redis remembers its server, so nothing is to be moved; \
                 name a file by --store redb:PATH, and it stays the same for any server"
            ),
        ),
        StoreMoved::Unused => (
            "unused",
            format!("{store}: nobody has used it yet, and the next start takes it for {server}"),
        ),
        StoreMoved::Already => ("already", format!("{store}: serves {server} already")),
        StoreMoved::Done { from } => (
            "moved",
            format!("{store}: served {from} and now serves {server}; its tasks stay"),
        ),
        StoreMoved::Alive { from, replicas } => (
            "alive",
            format!(
                "{store}: nothing was changed, because replicas in front of {from} are alive ({}); stop \
                 them first, or say --force if they may go on with the old address",
                replicas.join(", ")
            ),
        ),
    };
    MoveTold {
        outcome,
        sentence,
        is_done: !matches!(moved, StoreMoved::Alive { .. }),
    }
}

fn from(moved: &StoreMoved) -> Option<&str> {
    match moved {
        StoreMoved::Done { from } | StoreMoved::Alive { from, .. } => Some(from),
        StoreMoved::Nameless | StoreMoved::Unused | StoreMoved::Already => None,
    }
}

fn replicas(moved: &StoreMoved) -> Value {
    match moved {
        StoreMoved::Alive { replicas, .. } => json!(replicas),
        StoreMoved::Nameless
        | StoreMoved::Unused
        | StoreMoved::Already
        | StoreMoved::Done { .. } => json!([]),
    }
}
