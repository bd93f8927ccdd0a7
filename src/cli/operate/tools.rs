//! `raincheck tools`: what the tools did, which are paused; pause some, on all replicas, and resume them.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::reach::ReachArgs;
use super::shown::{age, at, members, said, text};
use super::stats::StatsArgs;
use crate::cli::failure::CommandFailure;
use crate::cli::stdout::print;
use crate::cli::table::cleaned;
use crate::config::duration;

#[derive(Debug, Args)]
pub(in crate::cli) struct ToolsArgs {
    #[command(flatten)]
    reach: ReachArgs,
    #[arg(long, global = true, help = "JSON for scripts, in place of text")]
    json: bool,
    #[command(subcommand)]
    what: ToolsCommand,
}

#[derive(Debug, Subcommand)]
enum ToolsCommand {
    /// What ended lately, by tool, with durations; of one tool over time
    Stats(StatsArgs),
    /// The tools that are paused, until when, and why
    Paused,
    /// Begin no new calls of a tool for a while; calls that run go on
    Pause(PauseArgs),
    /// End a pause now
    Resume {
        #[arg(value_name = "TOOL", help = "As in the pause")]
        tools: String,
    },
}

#[derive(Debug, Args)]
struct PauseArgs {
    #[arg(value_name = "TOOL", help = "A name, or a glob such as build_*")]
    tools: String,
    #[arg(
        long = "for",
        value_name = "DURATION",
        help = "How long, such as 30m; the pause ends by itself"
    )]
    lasts: String,
    #[arg(long, value_name = "TEXT", help = "Why: clients read it, too")]
    reason: Option<String>,
}

pub(in crate::cli) fn tools(args: &ToolsArgs) -> Result<ExitCode, CommandFailure> {
    let reach = &args.reach;
    let list = match &args.what {
        ToolsCommand::Stats(stats) => {
            let answer = reach.json(Method::GET, &stats.path()?, None)?;
            let text = said(args.json, &answer, |answer| stats.text(answer));
            return print(text).map(|()| ExitCode::SUCCESS);
        }
        ToolsCommand::Paused => reach.json(Method::GET, "/tools", None)?,
        ToolsCommand::Pause(pause) => {
            reach.json(Method::POST, "/tools/pause", Some(&pause.body()?))?
        }
        ToolsCommand::Resume { tools } => {
            let body = json!({ "tools": tools });
            reach.json(Method::POST, "/tools/resume", Some(&body))?
        }
    };
    print(said(args.json, &list, listed)).map(|()| ExitCode::SUCCESS)
}

impl PauseArgs {
    fn body(&self) -> Result<Value, CommandFailure> {
        let lasts = duration(&self.lasts)
            .map_err(|why| CommandFailure::usage(format!("--for {}: {why}", self.lasts)))?;
        let seconds = lasts.as_millis().div_ceil(1000);
        Ok(json!({
            "tools": self.tools,
            // A number that is too large for the listener is refused there.
            "seconds": u64::try_from(seconds).unwrap_or(u64::MAX),
            "reason": self.reason.as_deref().unwrap_or_default(),
        }))
    }
}

fn listed(list: &Value) -> String {
    let paused = members(list, "paused");
    if paused.is_empty() {
        return "nothing is paused\n".to_owned();
    }
    paused.iter().map(line).collect()
}

fn line(pause: &Value) -> String {
    let seconds = at(pause, "seconds_left").as_u64().unwrap_or_default();
    let left = age(seconds);
    let (tools, until) = (cleaned(text(pause, "tools")), text(pause, "until"));
    let by = match text(pause, "by") {
        "" => String::new(),
        by => format!(", by {}", cleaned(by)),
    };
    let unknown = if at(pause, "known") == false {
        " (the server has listed no tool of this name)"
    } else {
        ""
    };
    let line = format!("{tools}{unknown}: paused until {until}, {left} from now{by}");
    match text(pause, "reason") {
        "" => format!("{line}\n"),
        reason => format!("{line}: {}\n", cleaned(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_a_duration_as_in_the_settings() {
        let asked = |lasts: &str| {
            let args = PauseArgs {
                tools: "build_*".into(),
                lasts: lasts.into(),
                reason: None,
            };
            args.body()
        };
        let body = json!({"tools": "build_*", "seconds": 1800, "reason": ""});
        assert_eq!(asked("30m").unwrap(), body);
        let refused = asked("tomorrow").unwrap_err().text;
        assert!(refused.starts_with("--for tomorrow: "), "{refused}");
    }

    #[test]
    fn each_pause_has_a_line() {
        let pause = json!({"tools": "x", "until": "2026-12-01T14:30:00.000Z", "seconds_left": 5400, "reason": "disk"});
        assert_eq!(
            listed(&json!({"paused": [pause]})),
            "x: paused until 2026-12-01T14:30:00.000Z, 90m from now: disk\n"
        );
        let by_ada =
            json!({"tools": "x", "until": "U", "seconds_left": 5, "reason": "", "by": "ada"});
        assert_eq!(
            listed(&json!({"paused": [by_ada]})),
            "x: paused until U, 5s from now, by ada\n"
        );
        assert_eq!(listed(&json!({"paused": []})), "nothing is paused\n");
    }
}
