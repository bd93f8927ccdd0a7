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
        if !self.yes {
            print(said(as_json, &page, listed))?;
            let count = at(&page, "total");
            let why = format!("nothing is cancelled: with --yes, these {count} tasks are");
            return Err(CommandFailure::usage(why));
        }
        let ids: Vec<String> = tasks
            .iter()
            .map(|task| text(task, "id").to_owned())
            .collect();
        self.each(reach, as_json, &ids)?;
        if at(&page, "next_offset").is_null() && at(&page, "partial") != true {
            return Ok(ExitCode::SUCCESS);
        }
        Err(CommandFailure::runtime(
            "there are more of them: cancel again",
        ))
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
                failures.push((id, failure));
            }
        }
        let count = failures.len();
        match failures.into_iter().next() {
            None => Ok(ExitCode::SUCCESS),
            Some((_, failure)) if ids.len() == 1 => Err(failure),
            Some((id, failure)) => Err(CommandFailure {
                text: format!(
                    "{count} of {} are not cancelled; {id}: {}",
                    ids.len(),
                    failure.text
                ),
                ..failure
            }),
        }
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
