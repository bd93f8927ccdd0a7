//! `raincheck tasks rerun`: the same call once more, as a new task.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::json;

use super::acknowledge::user;
use super::filters::FailureArgs;
use super::reach::{ReachArgs, path_of};
use super::several::{Action, SeveralArgs};
use super::shown::{at, said, text};
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;

#[derive(Debug, Args)]
pub(super) struct RerunArgs {
    #[command(flatten)]
    tasks: SeveralArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[arg(
        long,
        help = "Also calls that may have run, of tools that are not declared safe to repeat"
    )]
    may_run_twice: bool,
    #[arg(
        long,
        value_name = "NAME",
        help = "Who does it [default: the variable USER]"
    )]
    by: Option<String>,
}

impl RerunArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        let action = Action {
            word: "run again",
            among: self.failures.unacknowledged(),
            of_these: "failures that nobody has acknowledged; others are named by their ids",
            has_filters: self.failures.is_any(),
            is_done: |task| !at(task, "acknowledged").is_null(),
            act: &|id| self.one(reach, as_json, id),
        };
        self.tasks.run(reach, as_json, &action)
    }

    fn one(&self, reach: &ReachArgs, as_json: bool, id: &str) -> Result<(), CommandFailure> {
        let by = self.by.clone().or_else(user).unwrap_or_default();
        let body = json!({ "may_run_twice": self.may_run_twice, "by": by });
        let begun = reach.json(Method::POST, &path_of(id, "/rerun"), Some(&body))?;
        print(said(as_json, &begun, |begun| {
            let [new, old] = ["id", "rerun_of"].map(|key| text(begun, key));
            format!("{old} runs again as {new}\n")
        }))
    }
}
