//! `raincheck tasks`: list, show, watch, cancel and answer the tasks of a running raincheck and of all its replicas.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use super::reach::{ReachArgs, print};
use crate::cli::failure::CommandFailure;
use crate::cli::process::runtime;
use crate::cli::table::{printable, table};

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
    /// Cancel a task as its client could
    Cancel(CancelArgs),
    /// Answer an open question of a task, in place of its client
    Answer(AnswerArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[arg(
        long,
        help = "open, ended, working, input_required, completed, failed or cancelled"
    )]
    state: Option<String>,
    #[arg(long, help = "Only of this tool")]
    tool: Option<String>,
    #[arg(
        long,
        help = "Only of this caller: its label, or its hash, as the list shows it"
    )]
    caller: Option<String>,
    #[arg(long, help = "Only of this replica")]
    replica: Option<String>,
    #[arg(long, value_name = "SECONDS", help = "Only older tasks")]
    older: Option<u64>,
    #[arg(
        long,
        help = "newest, oldest or stuck (what waits for an answer first) [default: newest]"
    )]
    sort: Option<String>,
    #[arg(long, help = "The most tasks [default: 100]")]
    limit: Option<usize>,
    #[arg(long, help = "Leave out so many")]
    offset: Option<usize>,
}

#[derive(Debug, Args)]
struct CancelArgs {
    id: String,
    #[arg(
        long,
        help = "Also the open tasks that name it, directly or through each other"
    )]
    tree: bool,
}

#[derive(Debug, Args)]
struct AnswerArgs {
    id: String,
    #[arg(
        value_name = "JSON",
        help = "The content of the answer, such as '{\"name\":\"Ada\"}'"
    )]
    content: Option<String>,
    #[arg(long, help = "Which question, if several are open")]
    key: Option<String>,
    #[arg(long, conflicts_with = "content", help = "Decline to answer")]
    decline: bool,
}

/// Asks for the tasks that are related to one, too.
const TREE: &str = "?tree=true";

/// The pause between two looks of `watch`.
const LOOK: Duration = Duration::from_secs(1);

pub(in crate::cli) fn tasks(args: &TasksArgs) -> Result<ExitCode, CommandFailure> {
    let reach = &args.reach;
    match &args.what {
        What::List(list) => {
            let page = reach.json(Method::GET, &list.path(), None)?;
            Ok(print(&said(args.json, &page, listed)))
        }
        What::Show { id } => {
            let task = reach.json(Method::GET, &path_of(id, TREE), None)?;
            Ok(print(&said(args.json, &task, shown)))
        }
        What::Watch { id } => watch(reach, id, args.json),
        What::Cancel(CancelArgs { id, tree: false }) => {
            let task = reach.json(Method::POST, &path_of(id, "/cancel"), None)?;
            Ok(print(&said(args.json, &task, is_now)))
        }
        What::Cancel(CancelArgs { id, tree: true }) => {
            let path = path_of(id, &format!("/cancel{TREE}"));
            let ended = reach.json(Method::POST, &path, None)?;
            let printed = print(&said(args.json, &ended, |ended| {
                members(ended, "tasks").iter().map(is_now).collect()
            }));
            if at(&ended, "partial") == true {
                let why = "not all of them are cancelled, or there may be more: ask again";
                return Err(CommandFailure::runtime(why.to_owned()));
            }
            Ok(printed)
        }
        What::Answer(answer) => {
            let task = reach.json(Method::GET, &path_of(&answer.id, ""), None)?;
            let body = answer.body(&task)?;
            let path = path_of(text(&task, "id"), "/answer");
            let task = reach.json(Method::POST, &path, Some(&body))?;
            Ok(print(&said(args.json, &task, |task| {
                format!("answered; {}", is_now(task))
            })))
        }
    }
}

impl ListArgs {
    fn path(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let numbers = [
            ("older", self.older.map(|it| it.to_string())),
            ("limit", self.limit.map(|it| it.to_string())),
            ("offset", self.offset.map(|it| it.to_string())),
        ];
        let texts = [
            ("state", &self.state),
            ("tool", &self.tool),
            ("caller", &self.caller),
            ("replica", &self.replica),
            ("sort", &self.sort),
        ];
        for (key, value) in &numbers {
            query.extend_pairs(value.iter().map(|value| (*key, value)));
        }
        for (key, value) in texts {
            query.extend_pairs(value.iter().map(|value| (key, value)));
        }
        format!("/tasks?{}", query.finish())
    }
}

impl AnswerArgs {
    /// The answer to the one open question, or to the one that `--key` names.
    fn body(&self, task: &Value) -> Result<Value, CommandFailure> {
        let open = questions(task);
        let keys: Vec<&str> = open.iter().map(|question| text(question, "key")).collect();
        let key = match (&self.key, keys.as_slice()) {
            (_, []) => {
                let state = text(task, "state");
                return Err(CommandFailure::runtime(format!(
                    "the task asks nothing: {state}"
                )));
            }
            (Some(key), _) => key.as_str(),
            (None, [key]) => key,
            (None, _) => {
                let all = keys.join(", ");
                return Err(CommandFailure::usage(format!(
                    "several questions are open: name one with --key: {all}"
                )));
            }
        };
        let answer = match (&self.content, self.decline) {
            (_, true) => json!({"action": "decline"}),
            (Some(content), false) => {
                let content: Value = serde_json::from_str(content).map_err(|error| {
                    CommandFailure::usage(format!("the answer is not JSON: {error}"))
                })?;
                json!({"action": "accept", "content": content})
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

fn watch(reach: &ReachArgs, id: &str, as_json: bool) -> Result<ExitCode, CommandFailure> {
    let mut last = Value::Null;
    loop {
        let task = reach.json(Method::GET, &path_of(id, ""), None)?;
        let now = json!([
            at(&task, "state"),
            at(&task, "progress"),
            at(&task, "questions"),
            at(&task, "leg")
        ]);
        if now != last {
            last = now;
            print(&said(as_json, &task, |task| {
                format!("{}\n", one_line(task))
            }));
        }
        match text(&task, "state") {
            "completed" => return Ok(ExitCode::SUCCESS),
            "failed" | "cancelled" => return Ok(ExitCode::from(1)),
            _ => {}
        }
        runtime()?.block_on(tokio::time::sleep(LOOK));
    }
}

/// As JSON on one line, or as a person reads it.
fn said(as_json: bool, value: &Value, person: impl FnOnce(&Value) -> String) -> String {
    if as_json {
        format!("{value}\n")
    } else {
        person(value)
    }
}

fn listed(page: &Value) -> String {
    let tasks = members(page, "tasks");
    let head = ["id", "state", "tool", "age", "replica", "caller", "remarks"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(tasks.iter().map(|task| {
        let id: String = text(task, "id").chars().take(8).collect();
        [
            id,
            text(task, "state").to_owned(),
            printable(text(task, "tool")),
            age(at(task, "seconds").as_u64().unwrap_or_default()),
            printable(text(task, "replica")),
            printable(caller(task)),
            remarks(task),
        ]
    }));
    let mut out = if tasks.is_empty() {
        "  no tasks\n".to_owned()
    } else {
        table(&rows)
    };
    let counts = at(page, "counts").as_object();
    let counts = counts.into_iter().flatten();
    let counts = counts.map(|(state, count)| format!("{count} {state}"));
    let _ = writeln!(out, "\n  {}", counts.collect::<Vec<_>>().join(", "));
    if let Some(next) = at(page, "next_offset").as_u64() {
        let total = at(page, "total");
        let _ = writeln!(
            out,
            "  {} of {total} shown; --offset {next} shows more",
            tasks.len()
        );
    }
    if at(page, "partial") == true {
        out.push_str("  there are more open tasks than one list looks at\n");
    }
    out
}

/// The label of the caller, or the beginning of its hash.
fn caller(task: &Value) -> &str {
    let label = at(task, "label").as_str();
    label.unwrap_or_else(|| text(task, "caller"))
}

/// What else is to know: progress, open questions, why it failed.
fn remarks(task: &Value) -> String {
    let mut remarks = Vec::new();
    match at(task, "questions").as_u64() {
        Some(0) | None => {}
        Some(1) => remarks.push("asks a question".to_owned()),
        Some(count) => remarks.push(format!("asks {count} questions")),
    }
    let progress = at(task, "progress");
    if !progress.is_null() && at(task, "outcome").is_null() {
        let total = at(progress, "total");
        let of = if total.is_null() {
            String::new()
        } else {
            format!(" of {total}")
        };
        remarks.push(format!("{}{of}", at(progress, "progress")));
    }
    if let Some(reason) = at(task, "reason").as_str() {
        remarks.push(format!("{reason}, effect {}", text(task, "effect")));
    }
    if at(task, "outcome") == "tool_error" {
        remarks.push("the tool says that it failed".to_owned());
    }
    if at(task, "announced") == false {
        remarks.push("its client waits".to_owned());
    }
    remarks.join("; ")
}

fn one_line(task: &Value) -> String {
    let remarks = remarks(task);
    let separator = if remarks.is_empty() { "" } else { ": " };
    let seconds = age(at(task, "seconds").as_u64().unwrap_or_default());
    format!("{seconds} {}{separator}{remarks}", text(task, "state"))
}

fn shown(task: &Value) -> String {
    let mut rows: Vec<[String; 2]> = Vec::new();
    let names = [
        "id",
        "state",
        "tool",
        "label",
        "caller",
        "replica",
        "leg",
        "began",
        "created",
        "updated",
        "deadline",
        "expires",
        "attempts",
        "owners",
        "outcome",
        "reason",
        "effect",
        "message",
        "progress",
        "arguments",
        "result",
    ];
    for name in names {
        let value = match at(task, name) {
            Value::Null => continue,
            Value::String(text) => printable(text),
            other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        };
        rows.push([name.to_owned(), value]);
    }
    for (name, key) in [("related to", "related"), ("named by", "named_by")] {
        for other in members(task, key) {
            let id: String = text(other, "id").chars().take(8).collect();
            let (state, tool) = (text(other, "state"), printable(text(other, "tool")));
            rows.push([name.to_owned(), format!("{id} {state} {tool}")]);
        }
    }
    let mut out = table(&rows);
    let events = at(task, "timeline").as_array().into_iter().flatten();
    let events: Vec<_> = events
        .map(|event| [text(event, "at").to_owned(), text(event, "what").to_owned()])
        .collect();
    let _ = write!(out, "\n{}", table(&events));
    let messages = at(task, "messages").as_array().into_iter().flatten();
    let messages: Vec<_> = messages
        .map(|said| [text(said, "at").to_owned(), printable(text(said, "text"))])
        .collect();
    if !messages.is_empty() {
        let _ = write!(out, "\n{}", table(&messages));
    }
    for question in questions(task) {
        out.push('\n');
        out.push_str(&question_text(question));
    }
    out
}

fn is_now(task: &Value) -> String {
    format!("{} is {}\n", text(task, "id"), text(task, "state"))
}

fn questions(task: &Value) -> &[Value] {
    members(task, "open_questions")
}

fn members<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    at(value, key).as_array().map_or(&[][..], Vec::as_slice)
}

fn question_text(question: &Value) -> String {
    let request = at(question, "request");
    let params = at(request, "params");
    let mut out = format!("  question {}: ", text(question, "key"));
    let message = at(params, "message").as_str();
    let method = at(request, "method").as_str().unwrap_or_default();
    let _ = writeln!(out, "{}", printable(message.unwrap_or(method)));
    if !at(params, "requestedSchema").is_null() {
        let _ = writeln!(out, "    its answer: {}", at(params, "requestedSchema"));
    }
    out
}

/// A member of an object; `null` if there is none.
fn at<'v>(value: &'v Value, key: &str) -> &'v Value {
    value.get(key).unwrap_or(&Value::Null)
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn path_of(id: &str, rest: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("/tasks/{id}{rest}")
}

/// Whole seconds, minutes, hours or days.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
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
        let refused = |args: AnswerArgs, task: &Value| args.body(task).unwrap_err().text;
        assert!(refused(answer(None, None, true), &asking(&["q", "r"])).contains("--key: q, r"));
        assert!(refused(answer(None, None, false), &asking(&["q"])).contains("question q"));
        assert!(refused(answer(Some("{"), None, false), &asking(&["q"])).contains("not JSON"));
        assert!(refused(answer(None, None, true), &asking(&[])).contains("asks nothing"));
    }

    #[test]
    fn a_list_is_a_table_with_counts() {
        let task = json!({
            "id": "0a1b2c3d-0000", "state": "failed", "tool": "bu\u{1b}ild", "seconds": 130,
            "replica": "web-0", "caller": "11223344", "reason": "owner_lost", "effect": "unknown",
            "outcome": "failed", "announced": true, "questions": 0,
        });
        let page = json!({"tasks": [task], "counts": {"failed": 1}, "total": 1, "partial": false});
        assert_eq!(
            listed(&page),
            "  id        state   tool    age  replica  caller    remarks\n  \
               0a1b2c3d  failed  bu\u{fffd}ild  2m   web-0    11223344  owner_lost, effect unknown\n\n  \
               1 failed\n"
        );
    }
}
