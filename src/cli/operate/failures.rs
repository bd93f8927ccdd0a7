//! `raincheck tasks ack` and `raincheck tasks rerun`: what operators do about failures.

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

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
    failed: FailedArgs,
    #[arg(
        long,
        value_name = "TEXT",
        help = "What was found, for those who look later"
    )]
    note: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct RerunArgs {
    #[command(flatten)]
    failed: FailedArgs,
    #[arg(
        long,
        help = "Also calls that ran, or may have, of tools that are not declared safe to repeat"
    )]
    may_run_twice: bool,
}

/// The failures, and who does something about them.
#[derive(Debug, Args)]
struct FailedArgs {
    #[command(flatten)]
    tasks: SeveralArgs,
    #[command(flatten)]
    failures: FailureArgs,
    #[arg(
        long,
        value_name = "NAME",
        help = "Who does it, if the token has no name [default: the variable USER]"
    )]
    by: Option<String>,
}

impl AcknowledgeArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        let note = self.note.as_deref().unwrap_or_default();
        let body = json!({ "note": note, "by": self.failed.by() });
        self.failed.run(reach, as_json, "acknowledged", &|id| {
            let task = reach.json(Method::POST, &path_of(id, "/ack"), Some(&body))?;
            print(said(as_json, &task, |task| {
                format!("{} is acknowledged\n", text(task, "id"))
            }))
        })
    }
}

impl RerunArgs {
    pub(super) fn run(&self, reach: &ReachArgs, as_json: bool) -> Result<ExitCode, CommandFailure> {
        let body = json!({ "may_run_twice": self.may_run_twice, "by": self.failed.by() });
        self.failed.run(reach, as_json, "run again", &|id| {
            let begun = reach.json(Method::POST, &path_of(id, "/rerun"), Some(&body))?;
            print(said(as_json, &begun, |begun| {
                let [new, old] = ["id", "rerun_of"].map(|key| text(begun, key));
                format!("{old} runs again as {new}\n")
            }))
        })
    }
}

impl FailedArgs {
    fn run(
        &self,
        reach: &ReachArgs,
        as_json: bool,
        word: &'static str,
        act: &dyn Fn(&str) -> Result<(), CommandFailure>,
    ) -> Result<ExitCode, CommandFailure> {
        let action = Action {
            word,
            among: self.failures.unacknowledged(),
            of_these: "failures that nobody has acknowledged; others are named by their ids",
            has_filters: self.failures.is_any(),
            is_done: |task: &Value| !at(task, "acknowledged").is_null(),
            act,
        };
        self.tasks.run(reach, as_json, &action)
    }

    /// The name of who does it. Without one it stays empty.
    fn by(&self) -> String {
        let environment = environment();
        let variable = |name: &str| environment.iter().find(|(known, _)| known == name);
        let found = || variable("USER").or_else(|| variable("USERNAME"));
        let by = self.by.clone();
        by.or_else(|| found().map(|(_, user)| user.chars().take(64).collect()))
            .unwrap_or_default()
    }
}
