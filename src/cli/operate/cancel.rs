//! `raincheck tasks cancel`: one task, several, a task with those that name it, or all open tasks that filters find.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::filters::{FilterArgs, list_path};
use super::reach::{ReachArgs, TREE, path_of};
use super::shown::{at, is_now, listed, members, said, text};
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// Their ids, or beginnings of ids
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[arg(
        long,
        help = "Also the open tasks that name it, directly or through each other"
    )]
    tree: bool,
    #[command(flatten)]
    filters: FilterArgs,
    #[arg(
        long,
        help = "Cancel what the filters find; without it, it is only shown"
    )]
    yes: bool,
}

impl CancelArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        match (self.ids.as_slice(), self.filters.is_any()) {
            ([], false) => Err(CommandFailure::usage(
                "name the tasks by their ids, or by filters such as --tool",
            )),
            ([], true) if self.tree => Err(CommandFailure::usage("--tree needs the id of a task")),
            ([], true) => self.found(reach, as_json),
            (_, true) => Err(CommandFailure::usage("name either ids or filters")),
            (ids, false) => self.each(reach, as_json, ids),
        }
    }

    /// Cancels the open tasks that the filters find, or shows them.
    fn found(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        let open = [
            ("state", Some("open".to_owned())),
            ("limit", Some(u64::MAX.to_string())),
        ];
        let path = list_path(open.into_iter().chain(self.filters.pairs()));
        let page = reach.json(Method::GET, &path, None)?;
        let tasks = members(&page, "tasks");
        let are_more = !at(&page, "next_offset").is_null() || at(&page, "partial") == true;
        if !self.yes || tasks.is_empty() {
            print(said(as_json, &page, listed))?;
        }
        if !self.yes && !tasks.is_empty() {
            let why = format!(
                "nothing is cancelled: with --yes, these {} tasks are",
                tasks.len()
            );
            return Err(CommandFailure::usage(why));
        }
        let mut failures = Vec::new();
        for task in tasks {
            let id = text(task, "id");
            let Err(failure) = self.one(reach, as_json, id) else {
                continue;
            };
            // A task that ended by itself meanwhile is as good. Where that cannot be asked, nothing can be cancelled either.
            let now = reach.json(Method::GET, &path_of(id, ""), None)?;
            if at(&now, "outcome").is_null() {
                failures.push((id, failure));
            }
        }
        let done = result(tasks.len(), failures);
        if are_more && done.is_ok() {
            let why = "there are more open tasks than one list has: cancel again";
            return Err(CommandFailure::runtime(why));
        }
        done
    }

    /// Cancels one task after the other. One that cannot be cancelled does not stop the others.
    fn each(
        &self,
        reach: &ReachArgs,
        as_json: bool,
        ids: &[String],
    ) -> Result<ExitCode, CommandFailure> {
        let mut failures = Vec::new();
        for id in ids {
            if let Err(failure) = self.one(reach, as_json, id) {
                failures.push((id.as_str(), failure));
            }
        }
        result(ids.len(), failures)
    }

    fn one(&self, reach: &ReachArgs, as_json: bool, id: &str) -> Result<(), CommandFailure> {
        if !self.tree {
            let task = reach.json(Method::POST, &path_of(id, "/cancel"), None)?;
            return print(said(as_json, &task, is_now));
        }
        let path = path_of(id, &format!("/cancel{TREE}"));
        let ended = reach.json(Method::POST, &path, None)?;
        // Printed before a failure is returned, because these tasks are cancelled in any case.
        print(said(as_json, &ended, |ended: &Value| {
            members(ended, "tasks").iter().map(is_now).collect()
        }))?;
        if at(&ended, "partial") == true {
            let why = "not all of them are cancelled, or there may be more: ask again";
            return Err(CommandFailure::runtime(why));
        }
        Ok(())
    }
}

/// The end of the command, by the tasks of so many that were not cancelled.
fn result(
    count: usize,
    mut failures: Vec<(&str, CommandFailure)>,
) -> Result<ExitCode, CommandFailure> {
    if count == 1
        && let Some((_, failure)) = failures.pop()
    {
        return Err(failure);
    }
    let Some(code) = failures.first().map(|(_, failure)| failure.code) else {
        return Ok(ExitCode::SUCCESS);
    };
    let each = failures.iter();
    let each: Vec<String> = each
        .map(|(id, failure)| format!("{id}: {}", failure.text))
        .collect();
    let text = format!(
        "{} of {count} are not cancelled; {}",
        each.len(),
        each.join("; ")
    );
    Err(CommandFailure { code, text })
}
