//! `raincheck tasks ack`: failures that somebody has looked at.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::json;

use super::filters::FailureArgs;
use super::reach::{ReachArgs, path_of};
use super::several::{Action, SeveralArgs};
use super::shown::{at, said, text};
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;
use crate::config::load::environment;

#[derive(Debug, Args)]
pub(super) struct AcknowledgeArgs {
    #[command(flatten)]
    tasks: SeveralArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[arg(
        long,
        value_name = "TEXT",
        help = "What was found, for those who look later"
    )]
    note: Option<String>,
    #[arg(
        long,
        value_name = "NAME",
        help = "Who looked [default: the variable USER]"
    )]
    by: Option<String>,
}

impl AcknowledgeArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        let action = Action {
            word: "acknowledged",
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
        let body = json!({ "note": self.note.as_deref().unwrap_or_default(), "by": by });
        let task = reach.json(Method::POST, &path_of(id, "/ack"), Some(&body))?;
        print(said(as_json, &task, |task| {
            format!("{} is acknowledged\n", text(task, "id"))
        }))
    }
}

/// The user of this computer, as the system names it.
pub(super) fn user() -> Option<String> {
    let environment = environment();
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name);
    let found = variable("USER").or_else(|| variable("USERNAME"));
    found.map(|(_, user)| user.chars().take(64).collect())
}
