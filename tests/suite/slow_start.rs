//! A program that is slow to its first words: its clients lose nothing by it, and it is started once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stdio_front::{Launched, modern};
use crate::support::client::{Client, TASKS};
use crate::support::{Config, PATIENCE, TempDir, within};

/// The shortest patience of a real client over a pipe is 2.9 s, and it began before we did.
const SOON: Duration = Duration::from_millis(2_500);

/// The scripted program, which begins to read after so many seconds. Each start is a line of a file.
fn program(directory: &TempDir, mode: &str, seconds: f32) -> Config {
    Config::never().section("upstream", &command(directory, mode, seconds))
}

pub(crate) fn command(directory: &TempDir, mode: &str, seconds: f32) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let starts = directory.path().join("starts");
    let line = format!(
        "echo start >> {}; sleep {seconds}; exec python3 {script} {mode}",
        starts.display()
    );
    format!("command = [\"sh\", \"-c\", {line:?}]")
}

/// The same, as what lies in files says: so that the command stays the same.
fn changing(directory: &TempDir) -> Config {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let line = format!(
        "cd {}; echo start >> starts; sleep $(cat delay); exec python3 {script} $(cat mode)",
        directory.path().display()
    );
    let command = format!("command = [\"sh\", \"-c\", {line:?}]");
    Config::never().section("upstream", &command)
}

fn set(directory: &TempDir, mode: &str, delay: &str) {
    directory.file("mode", mode);
    directory.file("delay", delay);
    let _ = std::fs::remove_file(directory.path().join("starts"));
}

async fn discover(client: &mut Launched, id: u64) -> Value {
    let found = client.request(json!(id), "server/discover", modern(json!({})));
    found.await["result"].clone()
}

pub(crate) fn starts(directory: &Path) -> usize {
    let starts = std::fs::read_to_string(directory.join("starts"));
    starts.unwrap_or_default().lines().count()
}

#[track_caller]
fn assert_names_everything(result: &Value) {
    let capabilities = &result["capabilities"];
    for kind in ["tools", "resources", "prompts", "completions", "logging"] {
        assert!(capabilities[kind].is_object(), "{kind}: {result}");
    }
    assert_eq!(capabilities["extensions"][TASKS], json!({}), "{result}");
    assert!(result.get("instructions").is_none(), "{result}");
    assert_eq!(result["supportedVersions"], json!(["2026-07-28"]));
}

#[tokio::test]
async fn discovery_over_a_pipe_does_not_wait_for_it_and_lists_do() {
    for mode in ["legacy", "modern", "dual", "strict"] {
        let directory = TempDir::new();
        let mut client = Launched::with(&[], &program(&directory, mode, 4.0));
        let from = Instant::now();
        let found = client
            .request(json!(1), "server/discover", modern(json!({})))
            .await;
        assert!(from.elapsed() < SOON, "{mode}: {:?}", from.elapsed());
        assert_names_everything(&found["result"]);
        for (method, member) in [
            ("prompts/list", "prompts"),
            ("resources/list", "resources"),
            ("resources/templates/list", "resourceTemplates"),
        ] {
            let listed = client
                .request(json!(member), method, modern(json!({})))
                .await;
            assert_eq!(listed["result"][member], json!([]), "{mode}: {listed}");
            assert_eq!(listed["result"]["resultType"], "complete");
        }
        let listed = client
            .request(json!(2), "tools/list", modern(json!({})))
            .await;
        assert!(listed["result"]["tools"].as_array().unwrap().len() > 10);
        let again = client
            .request(json!(3), "server/discover", modern(json!({})))
            .await;
        let info = &again["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "stdio-fixture", "{again}");
        // One that ends at the question has to be started again.
        let expected = if mode == "strict" { 3 } else { 1 };
        assert_eq!(starts(directory.path()), expected, "{mode}");
        client.ended().await;
    }
}

#[tokio::test]
async fn a_legacy_client_over_a_pipe_has_the_process_that_was_started_first() {
    for mode in ["legacy", "dual", "strict", "deaf"] {
        let directory = TempDir::new();
        let mut client = Launched::with(&[], &program(&directory, mode, 0.2));
        client.initialize().await;
        let listed = client.request(json!(2), "tools/list", json!({})).await;
        assert!(listed["result"]["tools"].as_array().unwrap().len() > 10);
        assert_eq!(starts(directory.path()), 1, "{mode}");
        client.ended().await;
    }
}

#[tokio::test]
async fn the_process_that_was_asked_is_the_first_caller_s() {
    for mode in ["legacy", "modern", "dual"] {
        let directory = TempDir::new();
        let proxy = program(&directory, mode, 0.2).start("").await;
        let client = Client::of(proxy.address());
        let echo = client.call("echo", json!({"text": "x"})).await;
        assert_eq!(echo.into_text(), "x");
        assert_eq!(starts(directory.path()), 1, "{mode}");
        let discovered = client.request("server/discover", json!({})).send();
        let found = within(PATIENCE, "an answer", discovered)
            .await
            .into_result();
        let info = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "stdio-fixture", "{mode}: {found}");
        assert_eq!(starts(directory.path()), 1, "{mode}");
    }
}

/// What was asked of it before, it need not bear.
#[tokio::test]
async fn a_session_that_cannot_go_on_with_it_has_a_process_of_its_own() {
    let directory = TempDir::new();
    let proxy = program(&directory, "strict", 0.0).start("").await;
    let client = Client::of(proxy.address());
    let initialize = crate::support::session::initialize("2025-11-25", json!({}));
    let answer = client.post(initialize.to_string()).send().await;
    assert_eq!(answer.into_result()["serverInfo"]["name"], "stdio-fixture");
}

#[tokio::test]
async fn what_it_said_before_is_said_at_once_by_the_next_run() {
    for mode in ["legacy", "modern", "strict"] {
        let directory = Arc::new(TempDir::new());
        let config = changing(&directory);
        for (run, delay) in ["0", "4"].into_iter().enumerate() {
            set(&directory, mode, delay);
            let mut client = Launched::remembering(&[], &config, &directory);
            let list = |id| (json!(id), "tools/list", modern(json!({})));
            if run == 0 {
                // Afterwards it has said what it is.
                let (id, method, params) = list(1);
                client.request(id, method, params).await;
            }
            let from = Instant::now();
            let found = discover(&mut client, 2).await;
            assert!(from.elapsed() < SOON, "{mode}: {:?}", from.elapsed());
            let info = &found["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert_eq!(info["name"], "stdio-fixture", "{mode}: {found}");
            if mode != "modern" {
                assert_eq!(found["instructions"], "do", "{found}");
            }
            let (id, method, params) = list(3);
            let listed = client.request(id, method, params).await;
            assert!(listed["result"]["tools"].is_array(), "{listed}");
            if run == 1 {
                assert_eq!(
                    starts(directory.path()),
                    1,
                    "{mode}: it is known what it bears"
                );
            }
            client.ended().await;
        }
        let kept = std::fs::read_dir(directory.path().join("raincheck")).unwrap();
        let names = kept.map(|file| file.unwrap().file_name().into_string().unwrap());
        let names: Vec<_> = names.collect();
        let known = names.iter().filter(|name| name.ends_with(".known.json"));
        assert_eq!(known.count(), 1, "{names:?}");
    }
}

/// What a legacy client was told is what a modern one is told next.
#[tokio::test]
async fn what_it_said_to_a_session_is_remembered_as_well() {
    let directory = Arc::new(TempDir::new());
    let config = changing(&directory);
    set(&directory, "legacy", "0");
    let mut first = Launched::remembering(&[], &config, &directory);
    first.initialize().await;
    first.ended().await;
    set(&directory, "legacy", "4");
    let mut client = Launched::remembering(&[], &config, &directory);
    let from = Instant::now();
    let found = discover(&mut client, 1).await;
    assert!(from.elapsed() < SOON, "{:?}", from.elapsed());
    assert_eq!(found["instructions"], "do", "{found}");
    client.ended().await;
}

#[tokio::test]
async fn a_memory_of_another_server_heals() {
    let directory = Arc::new(TempDir::new());
    let config = changing(&directory);
    for mode in ["legacy", "modern", "legacy", "dual", "strict"] {
        set(&directory, mode, "0");
        let mut client = Launched::remembering(&[], &config, &directory);
        let found = discover(&mut client, 1).await;
        assert!(
            found["capabilities"]["tools"].is_object(),
            "{mode}: {found}"
        );
        let listed = async {
            for id in 2.. {
                let listed = client
                    .request(json!(id), "tools/list", modern(json!({})))
                    .await;
                if listed["result"]["tools"].is_array() {
                    break;
                }
                assert!(listed["error"].is_object(), "{mode}: {listed}");
            }
        };
        within(PATIENCE, "it is understood again", listed).await;
        client.ended().await;
    }
}
