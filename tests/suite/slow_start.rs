//! A program that is slow to its first words: its clients lose nothing by it, and it is started once.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stdio_front::{Launched, modern};
use crate::support::client::{Client, TASKS};
use crate::support::{Config, PATIENCE, TempDir, within};

/// The shortest patience of a real client over a pipe is 2.9 s, and it began before we did.
const SOON: Duration = Duration::from_millis(2_500);

/// The scripted program, which begins to read after so many seconds. Each start is a line of a file.
fn program(directory: &TempDir, mode: &str, seconds: f32) -> Config {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/stdio_server.py");
    let starts = directory.path().join("starts");
    let line = format!(
        "echo start >> {}; sleep {seconds}; exec python3 {script} {mode}",
        starts.display()
    );
    let command = format!("command = [\"sh\", \"-c\", {line:?}]");
    Config::never().section("upstream", &command)
}

fn starts(directory: &Path) -> usize {
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
    let initialize = crate::facade::initialize("2025-11-25", json!({}));
    let answer = client.post(initialize.to_string()).send().await;
    assert_eq!(answer.into_result()["serverInfo"]["name"], "stdio-fixture");
}
