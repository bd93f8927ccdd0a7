//! Processes: what they are given, how they end, and that nothing is left of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use raincheck::upstream::line::session::ClientRequest;

use super::*;
use crate::directory::TempDir;
use crate::process::until_gone;

async fn gone(pid: u32) {
    until_gone(Duration::from_secs(15), pid).await;
}

#[tokio::test]
async fn a_child_sees_what_it_was_given_and_nothing_else() {
    let mut settings = of("legacy");
    let program = settings.command.as_mut().unwrap();
    program.environment.push(("TOKEN".into(), "s3cret".into()));
    program.arguments.push("$HOME; *".into());
    program.directory = Some("/tmp".into());
    let upstream = run(&settings);
    let seen: Value =
        serde_json::from_str(&text(&upstream, Era::Legacy, "env", "{}").await).unwrap();
    let mut names: Vec<&str> = seen["env"]
        .as_object()
        .unwrap()
        .keys()
        .map(|k| &**k)
        .collect();
    // A wrapper around Python is a shell, which sets some by itself.
    names.retain(|name| std::env::var_os(name).is_some() && !["PWD", "SHLVL", "_"].contains(name));
    names.retain(|name| *name != "LC_CTYPE" && !name.contains("PYENV_"));
    assert_eq!(names, ["PATH"], "and nothing else of ours");
    assert_eq!(seen["env"]["TOKEN"], "s3cret");
    assert_eq!(seen["argv"][2], "$HOME; *");
    assert_eq!(seen["cwd"], "/tmp");
    assert_eq!(
        seen["group"],
        pid(&upstream, Era::Legacy).await,
        "a group of its own"
    );
    assert!(!format!("{settings:?}").contains("s3cret"));
}

#[tokio::test]
async fn the_end_leaves_nothing_behind() {
    let upstream = upstream(Era::Legacy);
    let child = pid(&upstream, Era::Legacy).await;
    let grandchild = text(&upstream, Era::Legacy, "orphan", "{}").await;
    upstream.stop().await;
    gone(child).await;
    gone(grandchild.parse().unwrap()).await;
    assert_eq!(
        outcome_of(upstream.begin(Era::Legacy, call("echo"))).await,
        "upstream_unreachable none"
    );
}

#[tokio::test]
async fn a_child_that_does_not_want_to_end_is_killed() {
    let upstream = run(&of("stubborn"));
    let child = pid(&upstream, Era::Legacy).await;
    let held = begun(
        &upstream,
        Era::Legacy,
        call_with("hold", r#"{"nonce":"a"}"#),
    )
    .await;
    upstream.stop().await;
    gone(child).await;
    assert_eq!(outcome_of(held).await, "upstream_reset unknown");
}

#[tokio::test]
async fn what_a_dead_child_left_behind_is_killed() {
    let upstream = upstream(Era::Legacy);
    let grandchild = text(&upstream, Era::Legacy, "orphan", "{}").await;
    outcome_of(upstream.begin(Era::Legacy, call_with("exit", "{}"))).await;
    gone(grandchild.parse().unwrap()).await;
}

#[tokio::test]
async fn children_are_bounded_and_the_unused_make_room() {
    let mut settings = of("legacy");
    settings.children_max = 1;
    settings.session_wait = Duration::from_millis(300);
    let upstream = run(&settings);
    let own = pid(&upstream, Era::Legacy).await;
    let held = begun(
        &upstream,
        Era::Legacy,
        call_with("hold", r#"{"nonce":"a"}"#),
    )
    .await;
    let other = || UpstreamRequest {
        caller: [2; 16],
        ..call_with("pid", "{}")
    };
    assert_eq!(
        outcome_of(upstream.begin(Era::Legacy, other())).await,
        "sessions_in_use none"
    );
    // Its own calls have their child.
    assert_eq!(pid(&upstream, Era::Legacy).await, own);
    drop(held);
    settings.session_wait = Duration::from_secs(10);
    let upstream = run(&settings);
    let own = pid(&upstream, Era::Legacy).await;
    assert_ne!(
        text_of(upstream.begin(Era::Legacy, other())).await,
        own.to_string()
    );
    gone(own).await;
}

async fn minutes_later(minutes: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(minutes)).await;
    tokio::time::resume();
}

/// Most clients go without a word.
#[tokio::test]
async fn a_session_that_its_client_does_not_use_makes_room() {
    let mut settings = of("legacy");
    settings.children_max = 1;
    let upstream = run(&settings);
    let (left, _) = upstream
        .open_session([1; 16], None, LineChoice::Any)
        .await
        .unwrap();
    assert!(upstream.session(&left, [1; 16]).is_some());
    minutes_later(1).await;
    let (own, _) = upstream
        .open_session([2; 16], None, LineChoice::Any)
        .await
        .unwrap();
    assert!(upstream.session(&left, [1; 16]).is_none());
    assert!(upstream.session(&own, [2; 16]).is_some());
    // For calls, too.
    minutes_later(1).await;
    pid(&upstream, Era::Legacy).await;
    assert!(upstream.session(&own, [2; 16]).is_none());
}

#[tokio::test]
async fn a_session_that_is_in_use_makes_no_room() {
    let mut settings = of("legacy");
    settings.children_max = 1;
    settings.session_wait = Duration::from_millis(300);
    let upstream = run(&settings);
    let (id, session) = upstream
        .open_session([1; 16], None, LineChoice::Any)
        .await
        .unwrap();
    let is_refused = async || {
        upstream
            .open_session([2; 16], None, LineChoice::Any)
            .await
            .is_err()
    };
    assert!(is_refused().await, "used a moment ago");
    let mailbox = session.read_mailbox();
    minutes_later(2).await;
    assert!(is_refused().await, "its client listens");
    drop(mailbox);
    let params = r#"{"name":"hold","arguments":{"nonce":"a"}}"#;
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let asked = ClientRequest {
        id: serde_json::from_str("1").unwrap(),
        method: "tools/call",
        params: None,
        text: &text,
        streams: true,
    };
    // A client that hangs up may come back.
    drop(session.ask(&asked).await.unwrap());
    minutes_later(2).await;
    assert!(is_refused().await, "a call runs");
    assert!(upstream.session(&id, [1; 16]).is_some());
}

/// Nobody would look for it where a server is said to be unreachable.
#[tokio::test]
async fn the_limit_that_was_reached_is_named() {
    let folder = TempDir::new();
    let file = folder.path().join("log");
    let log = Arc::new(std::fs::File::create(&file).unwrap());
    let logged = tracing_subscriber::fmt().with_writer(log).finish();
    let _logging = tracing::subscriber::set_default(logged);
    let mut settings = of("legacy");
    settings.children_max = 1;
    settings.session_wait = Duration::from_millis(100);
    let upstream = run(&settings);
    let _session = upstream
        .open_session([1; 16], None, LineChoice::Any)
        .await
        .unwrap();
    upstream
        .open_session([2; 16], None, LineChoice::Any)
        .await
        .unwrap_err();
    let log = std::fs::read_to_string(&file).unwrap();
    assert!(log.contains("children_max"), "{log}");
}

#[tokio::test]
async fn an_unused_child_is_ended_after_five_minutes() {
    let upstream = upstream(Era::Legacy);
    let own = pid(&upstream, Era::Legacy).await;
    minutes_later(6).await;
    gone(own).await;
}

#[tokio::test]
async fn a_parent_that_has_ended_is_noticed_before_anything_runs() {
    let folder = TempDir::new();
    let mark = folder.path().join("mark");
    let mut parent = Command::new("true").spawn().unwrap();
    parent.wait().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_raincheck"))
        .args(["__child", &parent.id().to_string(), "--", "touch"])
        .arg(&mark)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(!Path::new(&mark).exists());
}
