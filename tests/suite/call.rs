//! `raincheck call`: a person at a terminal, and scripts, call tools of raincheck and of servers without it.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::client::Task;
use crate::support::terminal::Terminal;
use crate::support::upstream::long_text;
use crate::support::{Config, Era, Rig, TempDir, Upstream, in_both_eras};

in_both_eras!(
    a_person_sees_progress_and_answers,
    ctrl_c_cancels,
    a_task_is_left_and_taken_up_again,
    scripts_get_results_and_exit_codes,
    a_large_result_is_whole_where_it_is_kept,
    a_server_without_raincheck_is_called,
);

/// Of a result that is read in several ranges.
const BYTES: usize = 3 << 20;

fn url(rig: &Rig) -> String {
    format!("http://{}/mcp", rig.proxy.address())
}

/// What a script gets of the command.
#[derive(Debug)]
struct Script {
    code: i32,
    out: String,
    complaint: String,
}

async fn script(arguments: &[&str]) -> Script {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.arg("call").args(arguments);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    Script {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        complaint: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn a_person_sees_progress_and_answers(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let arguments = json!({"n": 4, "nonce": "s", "then": "ask"}).to_string();
    let terminal = Terminal::run(&["call", "steps", &arguments, "--url", &url(&rig)]);
    terminal
        .until_shown("[##############################] 4 of 4  step 4")
        .await;
    rig.upstream.release("s");
    terminal.until_shown("The server asks: Your name?").await;
    terminal.until_shown("name (text):").await;
    terminal.press("Enter");
    terminal.until_shown("name is needed").await;
    terminal.type_line("Ada");
    let screen = terminal.until_shown("exit code 0").await;
    assert!(screen.contains("\nAda\n"), "the result: {screen}");
}

async fn ctrl_c_cancels(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let terminal = Terminal::run(&["call", "held", "--url", &url(&rig)]);
    rig.upstream.until_started("held").await;
    terminal.until_shown("Ctrl-C cancels it").await;
    terminal.press("C-c");
    let screen = terminal.until_shown("exit code 130").await;
    assert!(screen.contains("raincheck: cancelled"), "{screen}");
    let task = task_on(&screen);
    let state = rig.client().get(&task).await;
    assert_eq!(state["status"], "cancelled", "{state}");
    rig.upstream.until_idle().await;
}

/// The task that the screen names.
fn task_on(screen: &str) -> Task {
    let (_, rest) = screen.split_once("task ").unwrap();
    let id = rest.split(';').next().unwrap().to_owned();
    Task {
        id,
        created: Value::Null,
    }
}

async fn a_task_is_left_and_taken_up_again(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let url = url(&rig);
    let arguments = json!({"n": 2, "nonce": "s", "then": "ask"}).to_string();
    let left = script(&["steps", &arguments, "--detach", "--url", &url]).await;
    assert_eq!(left.code, 0, "{left:?}");
    let id = left.out.trim();
    let terminal = Terminal::run(&["call", "--attach", id, "--url", &url]);
    terminal.until_shown("2 of 2  step 2").await;
    rig.upstream.release("s");
    terminal.until_shown("name (text):").await;

    let nobody = script(&["--attach", id, "--url", &url]).await;
    assert_eq!(nobody.code, 5, "{nobody:?}");
    assert!(nobody.complaint.contains("--attach"), "{nobody:?}");

    let answering =
        async |answer| script(&["--attach", id, "--url", &url, "--answer", answer]).await;
    let misspelt = answering(r#"{"nme":"Bo"}"#).await;
    assert_eq!((misspelt.code, &*misspelt.out), (2, ""), "{misspelt:?}");
    let why = "--answer has \"nme\", which is no field of the form: name; it was not sent; the task waits";
    assert!(misspelt.complaint.contains(why), "{misspelt:?}");
    let answered = answering(r#"{"name":"Bo"}"#).await;
    assert_eq!((answered.code, &*answered.out), (0, "Bo\n"), "{answered:?}");
    let screen = terminal.until_shown("exit code 0").await;
    assert!(screen.contains("Bo"), "answered elsewhere: {screen}");
    let again = script(&["--attach", id, "--url", &url, "--json"]).await;
    let result: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(result["content"][0]["text"], "Bo", "an ended task");
    let short = id.split('-').next().unwrap();
    let unknown = script(&["--attach", short, "--url", &url]).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");
    let advice = "needs the whole id, as --detach or the call itself printed it";
    assert!(unknown.complaint.contains(advice), "{unknown:?}");
}

async fn scripts_get_results_and_exit_codes(era: Era) {
    let rig = Rig::start(era, Config::always()).await;
    let url = url(&rig);
    let files = TempDir::new();
    let file = files.path().join("out");
    let file = file.to_str().unwrap();

    let failed = script(&["fail", "--url", &url, "--output", file]).await;
    assert_eq!((failed.code, &*failed.out), (3, ""), "{failed:?}");
    let kept = std::fs::read_to_string(file).unwrap();
    assert_eq!(kept, "it went wrong\n");

    let refused = script(&["error", "--url", &url, "--json"]).await;
    let said: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(said["error"]["code"].is_i64(), "{said}");

    let missing = files.path().join("none/out");
    let missing = script(&["echo", "--url", &url, "--output", missing.to_str().unwrap()]).await;
    assert_eq!(missing.code, 2, "{missing:?}");
    assert_eq!(
        rig.upstream.tally("echo").started,
        0,
        "told before the call"
    );

    let asked = script(&["ask", "--url", &url, "--answer", "decline"]).await;
    assert_eq!((asked.code, &*asked.out), (0, "decline\n"), "{asked:?}");

    let steps = json!({"n": 1, "nonce": "s"}).to_string();
    rig.upstream.release("s");
    let plain = script(&["steps", &steps, "--url", &url]).await;
    assert_eq!((plain.code, &*plain.out), (0, "stepped\n"), "{plain:?}");
    assert!(!plain.complaint.contains('\u{1b}'), "{plain:?}");
}

/// A person reads an excerpt, and a file or a program gets every byte.
async fn a_large_result_is_whole_where_it_is_kept(era: Era) {
    let rig = Rig::start(era, Config::always().terms("result_inline = \"64KiB\"")).await;
    let url = url(&rig);
    let arguments = json!({"bytes": BYTES}).to_string();
    let files = TempDir::new();
    let file = files.path().join("out");
    let file = file.to_str().unwrap();
    let written = script(&["long", &arguments, "--url", &url, "--output", file]).await;
    assert_eq!(
        (written.code, &*written.out),
        (0, ""),
        "{}",
        written.complaint
    );
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept.trim_end() == long_text(BYTES), "{} bytes", kept.len());
    let piped = script(&["long", &arguments, "--url", &url]).await;
    assert!(piped.out == kept, "{} bytes", piped.out.len());

    let detached = script(&["long", &arguments, "--url", &url, "--detach"]).await;
    let id = detached.out.trim();
    let whole = script(&["--attach", id, "--url", &url, "--json"]).await;
    let result: Value = serde_json::from_str(&whole.out).unwrap();
    assert!(result["content"][0]["text"] == long_text(BYTES));

    let uri = format!("raincheck://task/{}/result", uuid::Uuid::new_v4());
    let gone = script(&["verbatim", &excerpt_of(&uri), "--url", &url]).await;
    assert_eq!((gone.code, &*gone.out), (1, ""), "{gone:?}");
    assert!(gone.complaint.contains("its rest is gone"), "{gone:?}");

    let link = json!({"content": [{"type": "resource_link", "name": "result", "uri": uri}]});
    let arguments = json!({"result": link.to_string()}).to_string();
    let link = script(&["verbatim", &arguments, "--url", &url]).await;
    let answer = format!("[resource_link {uri}]\n");
    assert_eq!((link.code, link.out), (0, answer), "what the tool answers");
}

/// Arguments of `verbatim`, for a result that says it is an excerpt.
fn excerpt_of(uri: &str) -> String {
    let text = json!({"type": "text", "text": "a part"});
    let excerpt = json!({"content": [text], "_meta": {"io.raincheck/excerpt": uri}});
    json!({"result": excerpt.to_string()}).to_string()
}

/// The rest is not gone because a server did not give it.
#[tokio::test]
async fn what_was_not_read_can_still_be_read() {
    let upstream = Upstream::start(Era::Modern).await;
    upstream.make_tasks();
    let uri = format!("raincheck://task/{}/result", uuid::Uuid::new_v4());
    let left = script(&["verbatim", &excerpt_of(&uri), "--url", &upstream.url()]).await;
    assert_eq!((left.code, &*left.out), (1, ""), "{left:?}");
    let said = left.complaint.trim_end();
    assert!(
        said.contains("was not read") && said.ends_with(&format!("; read {uri}")),
        "{said}"
    );
    assert_eq!(upstream.requests("resources/read").len(), 2, "once more");
}

async fn a_server_without_raincheck_is_called(era: Era) {
    let upstream = Upstream::start(era).await;
    upstream.make_tasks();
    let url = upstream.url();
    let asked = script(&["ask", "--url", &url, "--answer", r#"{"name":"Ada"}"#]).await;
    assert_eq!((asked.code, &*asked.out), (0, "Ada\n"), "{asked:?}");

    let misspelt = script(&["ask", "--url", &url, "--answer", r#"{"nme":"Ada"}"#]).await;
    assert_eq!((misspelt.code, &*misspelt.out), (2, ""), "{misspelt:?}");
    assert!(misspelt.complaint.contains("form: name"), "{misspelt:?}");

    let misspelt = r#"{"nme":"Ada"}"#;
    let terminal = Terminal::run(&["call", "ask", "--url", &url, "--answer", misspelt]);
    terminal.until_shown("no field of the form: name").await;
    terminal.until_shown("name (text):").await;
    terminal.type_line("/decline");
    terminal.until_shown("exit code 0").await;

    let arguments = json!({"n": 3, "nonce": "c"}).to_string();
    let terminal = Terminal::run(&["call", "steps", &arguments, "--url", &url]);
    terminal.until_shown("3 of 3  step 3").await;
    terminal.press("C-c");
    terminal.until_shown("exit code 130").await;
    upstream.until_idle().await;
}

#[tokio::test]
async fn an_older_server_has_no_tasks_to_leave() {
    let upstream = Upstream::start(Era::Legacy).await;
    let left = script(&["held", "--detach", "--url", &upstream.url()]).await;
    assert_eq!(left.code, 1, "{left:?}");
    assert!(
        left.complaint.contains("put raincheck in front"),
        "{left:?}"
    );
    assert_eq!(upstream.tally("held").started, 0, "nothing was called");
}

#[tokio::test]
async fn a_program_is_called() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let arguments = json!({"text": "hi"}).to_string();
    let called = script(&["echo", &arguments, "--", "python3", program, "plain"]).await;
    assert_eq!(called.code, 0, "{called:?}");
    assert!(called.out.contains("hi"), "{called:?}");
    let ended = script(&["echo", "--", "sh", "-c", "echo no TOKEN >&2; exit 3"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.complaint.contains("no TOKEN"), "{ended:?}");
    let sees = format!("test \"$TEXT\" = x && exec python3 {program} plain");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.args(["call", "echo", &arguments, "--", "sh", "-c", &sees]);
    let called = command.env("TEXT", "x").output().await.unwrap();
    assert!(
        called.status.success(),
        "its user's environment: {called:?}"
    );
}

/// Programs of Windows write a byte order mark before a text.
#[tokio::test]
async fn arguments_come_from_standard_input() {
    let upstream = Upstream::start(Era::Modern).await;
    upstream.make_tasks();
    let files = TempDir::new();
    let input = files.file("input", "\u{feff}{\"text\":\"hi\"}\r\n");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.args(["call", "echo", "-", "--url", &upstream.url()]);
    command.stdin(std::fs::File::open(input).unwrap());
    let called = command.output().await.unwrap();
    assert!(called.status.success(), "{called:?}");
    assert!(called.stdout.starts_with(b"hi"), "{called:?}");
}

#[tokio::test]
async fn mistakes_say_what_to_do() {
    for (arguments, code, said) in [
        (&[][..], 2, "<TOOL>"),
        (
            &["t", "{", "--url", "http://127.0.0.1:1/mcp"],
            2,
            "not JSON",
        ),
        (
            &["http://127.0.0.1:1/mcp", "t"],
            2,
            "write raincheck call TOOL --url http://127.0.0.1:1/mcp",
        ),
        (&["t", "--url", "127.0.0.1:1"], 2, "--url: not the URL"),
        (
            &["t", "--url", "http://127.0.0.1:1/mcp"],
            1,
            "Connection refused",
        ),
        (
            &["t", "--url", "http://a/", "--header", "x"],
            2,
            "--header: not a header",
        ),
        (&["t", "--answer", "Ada"], 2, "--answer: not JSON"),
        (&["t", "--attach", "id"], 2, "cannot be used with"),
    ] {
        let said_of = script(arguments).await;
        assert_eq!(said_of.code, code, "{arguments:?} {said_of:?}");
        assert!(
            said_of.complaint.contains(said),
            "{arguments:?} {said_of:?}"
        );
    }
}

#[tokio::test]
async fn headers_are_sent_and_a_server_that_wants_credentials_is_told_apart() {
    let upstream = Upstream::start(Era::Modern).await;
    upstream.make_tasks();
    let files = TempDir::new();
    let file = files.file("headers", "Authorization: Bearer s3cret\n\nX-Team: a\n");
    let from_file = format!("@{}", file.display());
    let called = script(&["echo", "--url", &upstream.url(), "--header", &from_file]).await;
    assert_eq!(called.code, 0, "{called:?}");
    let calls = upstream.requests("tools/call");
    assert_eq!(calls[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(calls[0].header("x-team"), Some("a"));
    let mirrored = r#"{"region":"eu-west"}"#;
    let called = script(&["with_header", mirrored, "--url", &upstream.url()]).await;
    assert_eq!(called.code, 0, "arguments that headers mirror: {called:?}");
    upstream.challenge();
    let refused = script(&["echo", "--url", &upstream.url()]).await;
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.complaint.contains("--header 'Authorization"),
        "{refused:?}"
    );
}
