//! `raincheck tasks cancel`: one task, several, a task with those that name it, or all open tasks that filters find.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::Value;

use super::reach::{ReachArgs, TREE, path_of};
use super::several::{Action, SeveralArgs};
use super::shown::{at, is_now, members, said};
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    tasks: SeveralArgs,
    #[arg(
        long,
        help = "Also the open tasks that name it, directly or through each other"
    )]
    tree: bool,
}

impl CancelArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        if self.tree && self.tasks.ids.is_empty() && self.tasks.filters.is_any() {
            return Err(CommandFailure::usage("--tree needs the id of a task"));
        }
        let action = Action {
            word: "cancelled",
            among: vec![("state", Some("open".to_owned()))],
            of_these: "open tasks",
            has_filters: false,
            is_done: |task| !at(task, "outcome").is_null(),
            act: &|id| self.one(reach, as_json, id),
        };
        self.tasks.run(reach, as_json, &action)
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
