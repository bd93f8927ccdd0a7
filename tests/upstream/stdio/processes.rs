//! Processes: what they are given, how they end, and that nothing is left of them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

/// Waits until a process is gone; what waits for its parent to look is.
async fn gone(pid: u32) {
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let waiting = async {
        while is_there() {
            tokio::task::yield_now().await;
        }
    };
    let waited = timeout(Duration::from_secs(15), waiting).await;
    assert!(waited.is_ok(), "process {pid} is still there");
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
    let other = || Outgoing {
        caller: [2; 16],
        ..call_with("pid", "{}")
    };
    assert_eq!(
        outcome_of(upstream.begin(Era::Legacy, other())).await,
        "upstream_unreachable none"
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

#[tokio::test]
async fn an_unused_child_is_ended_after_five_minutes() {
    let upstream = upstream(Era::Legacy);
    let own = pid(&upstream, Era::Legacy).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(6)).await;
    gone(own).await;
}

#[tokio::test]
async fn a_parent_that_has_ended_is_noticed_before_anything_runs() {
    let mark = std::env::temp_dir().join(format!("raincheck-child-{}", std::process::id()));
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
