//! What a command does to several tasks: those that are named, or those that filters find.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::filters::{FilterArgs, list_path};
use super::reach::{ReachArgs, path_of};
use super::shown::{at, listed, members, said, text};
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;

/// The tasks.
#[derive(Debug, Args)]
pub(super) struct SeveralArgs {
    /// Their ids, or beginnings of ids
    #[arg(value_name = "ID")]
    pub(super) ids: Vec<String>,
    #[command(flatten)]
    pub(super) filters: FilterArgs,
    #[arg(
        long,
        help = "Do it to what the filters find; without it, that is only shown"
    )]
    yes: bool,
}

/// The action on each task.
pub(super) struct Action<'a> {
    /// The word for a task after it, such as "cancelled".
    pub(super) word: &'static str,
    /// The tasks among which the filters look, and how they are called.
    pub(super) among: Vec<(&'static str, Option<String>)>,
    pub(super) of_these: &'static str,
    /// Returns `true` if the command has filters of its own.
    pub(super) has_filters: bool,
    /// Returns `true` for a task to which it need not be done any more.
    pub(super) is_done: fn(&Value) -> bool,
    /// Does it to one task, and prints what became of it.
    pub(super) act: &'a dyn Fn(&str) -> Result<(), CommandFailure>,
}

impl SeveralArgs {
    pub(super) fn run(
        &self,
        reach: &ReachArgs,
        as_json: bool,
        action: &Action<'_>,
    ) -> Result<ExitCode, CommandFailure> {
        let has_filters = self.filters.is_any() || action.has_filters;
        match (self.ids.as_slice(), has_filters) {
            ([], false) => Err(CommandFailure::usage(
                "name the tasks by their ids, or by filters such as --tool",
            )),
            ([], true) => self.found(reach, as_json, action),
            (_, true) => Err(CommandFailure::usage("name either ids or filters")),
            // One that fails does not stop the others.
            (ids, false) => {
                let tried = ids.iter().map(|id| (id.as_str(), (action.act)(id)));
                let failures = tried.filter_map(|(id, tried)| Some((id, tried.err()?)));
                result(ids.len(), failures.collect(), action.word)
            }
        }
    }

    /// Acts on the tasks that the filters find, or shows them.
    fn found(
        &self,
        reach: &ReachArgs,
        as_json: bool,
        action: &Action<'_>,
    ) -> Result<ExitCode, CommandFailure> {
        let all = [("limit", Some(u64::MAX.to_string()))];
        let own = action.among.clone().into_iter().chain(all);
        let path = list_path(own.chain(self.filters.pairs()));
        let page = reach.json(Method::GET, &path, None)?;
        let tasks = members(&page, "tasks");
        let leads_on = |key| !at(&page, key).is_null();
        let are_more = leads_on("next_offset") || leads_on("next") || at(&page, "partial") == true;
        if !self.yes || tasks.is_empty() {
            print(said(as_json, &page, listed))?;
        }
        if tasks.is_empty() && !as_json {
            print(format!("  the filters look among {}\n", action.of_these))?;
        }
        if !self.yes && !tasks.is_empty() {
            let why = format!(
                "nothing is {}: with --yes, these {} tasks are",
                action.word,
                tasks.len()
            );
            return Err(CommandFailure::usage(why));
        }
        let mut failures = Vec::new();
        for task in tasks {
            let id = text(task, "id");
            let Err(failure) = (action.act)(id) else {
                continue;
            };
            // A task to which it was done meanwhile is as good. Where that cannot be asked, nothing can be done either.
            let now = reach.json(Method::GET, &path_of(id, ""), None)?;
            if !(action.is_done)(&now) {
                failures.push((id, failure));
            }
        }
        let done = result(tasks.len(), failures, action.word);
        if are_more && done.is_ok() {
            let why = "there are more tasks than one list has: do it again";
            return Err(CommandFailure::runtime(why));
        }
        done
    }
}

/// The end of the command, by the tasks of so many to which it was not done.
fn result(
    count: usize,
    mut failures: Vec<(&str, CommandFailure)>,
    word: &str,
) -> Result<ExitCode, CommandFailure> {
    if count == 1
        && let Some((_, failure)) = failures.pop()
    {
        return Err(failure);
    }
    let Some(code) = failures.first().map(|(_, failure)| failure.code) else {
        return Ok(ExitCode::SUCCESS);
    };
    // Most are refused for one reason, which is printed once.
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for (id, failure) in &failures {
        let known = by_reason.iter_mut().find(|(why, _)| *why == failure.text);
        match known {
            Some((_, ids)) => ids.push(id),
            None => by_reason.push((&failure.text, vec![id])),
        }
    }
    let each = by_reason
        .iter()
        .map(|(why, ids)| format!("{}: {why}", ids.join(", ")));
    let each: Vec<String> = each.collect();
    let text = format!(
        "{} of {count} are not {word}; {}",
        failures.len(),
        each.join("; ")
    );
    Err(CommandFailure { code, text })
}
