//! `raincheck tasks`: list, show, watch, cancel and answer the tasks of a running raincheck and of all its replicas.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::cancel::CancelArgs;
use super::failures::{AcknowledgeArgs, RerunArgs};
use super::filters::{ExportArgs, ListArgs};
use super::reach::{ReachArgs, TREE, path_of};
use super::shown::{
    at, is_now, listed, members, one_line, question_text, questions, said, shown, text,
};
use crate::cli::failure::CommandFailure;
use crate::cli::process::runtime;
use crate::cli::stdout::print;
use crate::cli::table::cleaned;
use crate::platform::environment::quoted;

#[derive(Debug, Args)]
pub(in crate::cli) struct TasksArgs {
    #[command(flatten)]
    reach: ReachArgs,
    #[arg(long, global = true, help = "JSON for scripts, in place of a table")]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The tasks, the newest first
    List(ListArgs),
    /// One task: its timeline and its open questions
    Show { id: String },
    /// One task, until it has ended; the exit code is 0 if it completed
    Watch { id: String },
    /// Cancel tasks as their clients could
    Cancel(CancelArgs),
    /// Answer an open question of a task, in place of its client
    Answer(AnswerArgs),
    /// Note that somebody has looked at failures: those with these ids, or those that filters find
    Ack(AcknowledgeArgs),
    /// Run calls that have ended again, as new tasks: with these ids, or failures that filters find
    Rerun(RerunArgs),
    /// Tasks that have ended, a line of JSON for each, the last end first
    Export(ExportArgs),
}

/// The tasks that one request of an export reads.
const EXPORTED: usize = 1_000;

#[derive(Debug, Args)]
struct AnswerArgs {
    id: String,
    #[arg(
        value_name = "JSON",
        help = format!("The content of the answer, such as {}", quoted(r#"{"name":"Ada"}"#))
    )]
    content: Option<String>,
    #[arg(long, help = "Which question, if several are open")]
    key: Option<String>,
    #[arg(long, conflicts_with = "content", help = "Decline to answer")]
    decline: bool,
}

/// The pause between two looks of `watch`.
const LOOK: Duration = Duration::from_secs(1);

pub(in crate::cli) fn tasks(args: &TasksArgs) -> Result<ExitCode, CommandFailure> {
    let reach = &args.reach;
    match &args.what {
        What::List(list) => {
            let page = reach.json(Method::GET, &list.path(), None)?;
            printed(&said(args.json, &page, listed))
        }
        What::Show { id } => {
            let task = reach.json(Method::GET, &path_of(id, TREE), None)?;
            printed(&said(args.json, &task, shown))
        }
        What::Watch { id } => watch(reach, id, args.json),
        What::Ack(ack) => ack.run(reach, args.json),
        What::Rerun(rerun) => rerun.run(reach, args.json),
        What::Export(export) => exported(reach, export),
        What::Cancel(cancel) => cancel.run(reach, args.json),
        What::Answer(answer) => {
            // Read first, because the answer must name the key of an open question.
            let task = reach.json(Method::GET, &path_of(&answer.id, ""), None)?;
            let body = answer.body(&task)?;
            // The whole id is sent: the beginning that the user wrote may fit two tasks by now.
            let path = path_of(text(&task, "id"), "/answer");
            let task = reach.json(Method::POST, &path, Some(&body))?;
            printed(&said(args.json, &task, |task| {
                format!("answered; {}", is_now(task))
            }))
        }
    }
}

impl AnswerArgs {
    /// The answer to the one open question, or to the one that `--key` names.
    fn body(&self, task: &Value) -> Result<Value, CommandFailure> {
        let open = questions(task);
        let keys: Vec<&str> = open.iter().map(|question| text(question, "key")).collect();
        let key = match (&self.key, keys.as_slice()) {
            // Comes first, because no key can be right while nothing is open.
            (_, []) => {
                let state = text(task, "state");
                return Err(CommandFailure::runtime(format!(
                    "the task asks nothing: {state}"
                )));
            }
            // The listener refuses a key that is not open, so it is not checked here.
            (Some(key), _) => key.as_str(),
            (None, [key]) => key,
            (None, _) => {
                let all = cleaned(&keys.join(", "));
                return Err(CommandFailure::usage(format!(
                    "several questions are open: name one with --key: {all}"
                )));
            }
        };
        let answer = match (&self.content, self.decline) {
            // The arguments cannot have a content beside `--decline`, so none is ignored here.
            (_, true) => json!({"action": "decline"}),
            (Some(content), false) => {
                let content: Value = serde_json::from_str(content).map_err(|error| {
                    CommandFailure::usage(format!("the answer is not JSON: {error}"))
                })?;
                let asked = open.iter().find(|question| text(question, "key") == key);
                let method = asked.map(|question| text(at(question, "request"), "method"));
                match method {
                    // Only a form has an action beside its content.
                    Some("sampling/createMessage" | "roots/list") => content,
                    _ => json!({"action": "accept", "content": content}),
                }
            }
            (None, false) => {
                let mut told = String::new();
                for question in open {
                    told.push_str(&question_text(question));
                }
                return Err(CommandFailure::usage(format!(
                    "write the answer as JSON, or --decline; open:\n{told}"
                )));
            }
        };
        Ok(json!({ key: answer }))
    }
}

fn printed(text: &str) -> Result<ExitCode, CommandFailure> {
    print(text).map(|()| ExitCode::SUCCESS)
}

/// Prints page after page, so that no more than one of them is in memory.
fn exported(reach: &ReachArgs, export: &ExportArgs) -> Result<ExitCode, CommandFailure> {
    let (mut after, mut is_whole) = (None, true);
    loop {
        let path = export.path(EXPORTED, after.as_deref());
        let page = reach.json(Method::GET, &path, None)?;
        let mut lines = String::new();
        for task in members(&page, "tasks") {
            lines.push_str(&said(true, task, |_| String::new()));
        }
        print(lines)?;
        is_whole &= at(&page, "lost") != true;
        after = at(&page, "next").as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    if is_whole {
        return Ok(ExitCode::SUCCESS);
    }
    let why = "the store has lost some of the tasks that ended: these are the rest";
    Err(CommandFailure::runtime(why))
}

fn watch(reach: &ReachArgs, id: &str, as_json: bool) -> Result<ExitCode, CommandFailure> {
    let mut last = Value::Null;
    loop {
        let task = reach.json(Method::GET, &path_of(id, ""), None)?;
        // The age changes with every look, so it is not compared.
        let now = json!([
            at(&task, "state"),
            at(&task, "progress"),
            at(&task, "questions"),
            at(&task, "leg")
        ]);
        if now != last {
            last = now;
            print(said(as_json, &task, |task| format!("{}\n", one_line(task))))?;
        }
        match text(&task, "state") {
            "completed" => return Ok(ExitCode::SUCCESS),
            "failed" | "cancelled" => return Ok(ExitCode::from(1)),
            _ => {}
        }
        runtime()?.block_on(tokio::time::sleep(LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(keys: &[&str]) -> Value {
        let open = keys.iter().map(|key| json!({"key": key, "request": {}}));
        json!({"id": "x", "state": "input_required", "open_questions": open.collect::<Vec<_>>()})
    }

    fn answer(content: Option<&str>, key: Option<&str>, decline: bool) -> AnswerArgs {
        AnswerArgs {
            id: "x".into(),
            content: content.map(Into::into),
            key: key.map(Into::into),
            decline,
        }
    }

    #[test]
    fn the_one_question_needs_no_name() {
        let body = answer(Some(r#"{"a":1}"#), None, false).body(&asking(&["q"]));
        let accepted = json!({"q": {"action": "accept", "content": {"a": 1}}});
        assert_eq!(body.unwrap(), accepted);
        let body = answer(None, Some("r"), true).body(&asking(&["q", "r"]));
        assert_eq!(body.unwrap(), json!({"r": {"action": "decline"}}));
        let mut sampling = asking(&["q"]);
        sampling["open_questions"][0]["request"] = json!({"method": "sampling/createMessage"});
        let body = answer(Some(r#"{"role":"assistant"}"#), None, false).body(&sampling);
        assert_eq!(body.unwrap(), json!({"q": {"role": "assistant"}}));
        let refused = |args: AnswerArgs, task: &Value| args.body(task).unwrap_err().text;
        assert!(refused(answer(None, None, true), &asking(&["q", "r"])).contains("--key: q, r"));
        assert!(refused(answer(None, None, false), &asking(&["q"])).contains("question q"));
        assert!(refused(answer(Some("{"), None, false), &asking(&["q"])).contains("not JSON"));
        assert!(refused(answer(None, None, true), &asking(&[])).contains("asks nothing"));
    }
}
