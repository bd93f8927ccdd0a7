//! Every way in which a program can go wrong, and the word for it.

use super::*;
use crate::directory::TempDir;

#[tokio::test]
async fn every_fault_has_its_word_and_the_next_call_its_child() {
    for era in BOTH {
        let mut settings = of(mode(era));
        settings.message_bytes_max = 1 << 20;
        let upstream = run(&settings);
        for (tool, arguments, expected) in [
            ("exit", "{}", "upstream_reset unknown"),
            ("segv", "{}", "upstream_reset unknown"),
            ("unfinished", "{}", "upstream_reset unknown"),
            ("close_stdout", "{}", "upstream_reset unknown"),
            ("long", r#"{"bytes":1048577}"#, "upstream_too_large unknown"),
            (
                "unreadable",
                r#"{"how":"half"}"#,
                r#"result {"x":"\ufffd"}"#,
            ),
            (
                "unreadable",
                r#"{"how":"deep"}"#,
                "upstream_too_deep unknown",
            ),
            (
                "unreadable",
                r#"{"how":"bytes"}"#,
                "upstream_invalid unknown",
            ),
            // A message is complete with its last brace.
            ("no_newline", "{}", r#"result {"content": []}"#),
        ] {
            let outcome = outcome_of(upstream.begin(era, call_with(tool, arguments))).await;
            assert_eq!(outcome, expected, "{tool}");
            assert_eq!(text(&upstream, era, "echo", r#"{"text":"on"}"#).await, "on");
        }
    }
}

/// The program goes on, and so do the calls beside the one whose answer is too large.
#[tokio::test]
async fn a_result_that_is_too_large_ends_its_own_call_only() {
    for era in BOTH {
        let mut settings = of(mode(era));
        settings.message_bytes_max = 1 << 20;
        let upstream = run(&settings);
        let neighbour = begun(&upstream, era, call_with("hold", r#"{"nonce":"n"}"#)).await;
        let large = call_with("large", r#"{"bytes":3000000}"#);
        let end = outcome_of(upstream.begin(era, large)).await;
        assert_eq!(end, "upstream_too_large unknown");
        assert_eq!(text(&upstream, era, "echo", r#"{"text":"on"}"#).await, "on");
        let release = call_with("release", r#"{"nonces":["n"]}"#);
        assert!(
            outcome_of(upstream.begin(era, release))
                .await
                .starts_with("result")
        );
        assert!(outcome_of(neighbour).await.starts_with("result"));
    }
}

#[tokio::test]
async fn all_calls_of_a_dead_child_end() {
    for era in BOTH {
        let mut settings = of(mode(era));
        settings.message_bytes_max = 1 << 20;
        for (tool, arguments) in [("exit", "{}"), ("long", r#"{"bytes":1048577}"#)] {
            let upstream = run(&settings);
            let mut calls = Vec::new();
            for n in 0..20 {
                let nonce = format!(r#"{{"nonce":"n{n}"}}"#);
                calls.push(begun(&upstream, era, call_with("hold", &nonce)).await);
            }
            let end = outcome_of(upstream.begin(era, call_with(tool, arguments))).await;
            assert_eq!(
                end, "upstream_reset unknown",
                "whose line it was is not known"
            );
            for call in calls {
                assert_eq!(outcome_of(call).await, "upstream_reset unknown");
            }
        }
    }
}

/// What was never written is written to the next child; what was begun is not.
#[tokio::test]
async fn only_what_was_not_sent_is_sent_again() {
    for era in BOTH {
        let upstream = upstream(era);
        let child = pid(&upstream, era).await;
        let freeze = outcome_of(upstream.begin(era, call_with("freeze", "{}")));
        let frozen = async {
            let stat = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
            eventually(Duration::from_secs(20), "the child is frozen", async || {
                let stat = stat();
                let frozen = stat.contains(") T ");
                frozen.then_some(()).ok_or(stat)
            })
            .await;
            // More than a pipe holds. The child reads nothing of it, so the next one gets it.
            let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
            let large = outcome_of(upstream.begin(era, call_with("echo", &large)));
            let waiting = text(&upstream, era, "echo", r#"{"text":"on"}"#);
            let kill = async {
                // One thread: all that can run has run by then.
                for _ in 0..1000 {
                    tokio::task::yield_now().await;
                }
                let child = i32::try_from(child)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw);
                let kill = rustix::process::Signal::KILL;
                rustix::process::kill_process(child.unwrap(), kill).unwrap();
            };
            let (large, waiting, ()) = tokio::join!(large, waiting, kill);
            assert!(large.starts_with("result"), "{large}");
            assert_eq!(waiting, "on");
        };
        let (freeze, ()) = tokio::join!(freeze, frozen);
        assert_eq!(freeze, "upstream_reset unknown");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_skipped() {
    for era in BOTH {
        let upstream = upstream(era);
        assert_eq!(text(&upstream, era, "garbage", "{}").await, "clean");
        assert_eq!(text(&upstream, era, "twice", "{}").await, "first");
        assert_eq!(text(&upstream, era, "echo", r#"{"text":"on"}"#).await, "on");
        let wrong = begun(&upstream, era, call_with("wrong_id", "{}")).await;
        wrong.control.cancel().await;
        assert_eq!(text(&upstream, era, "echo", r#"{"text":"on"}"#).await, "on");
    }
}

#[tokio::test]
async fn ten_mebibytes_on_standard_error_stop_nobody() {
    for era in BOTH {
        let upstream = upstream(era);
        let ten = r#"{"bytes":10485760}"#;
        assert_eq!(text(&upstream, era, "stderr", ten).await, "loud");
    }
}

#[tokio::test]
async fn a_line_of_the_largest_size_ends_the_child_and_not_us() {
    let upstream = upstream(Era::Legacy);
    let own = pid(&upstream, Era::Legacy).await;
    let long = call_with("long", r#"{"bytes":33554433}"#);
    assert_eq!(
        outcome_of(upstream.begin(Era::Legacy, long)).await,
        "upstream_too_large unknown"
    );
    assert_ne!(pid(&upstream, Era::Legacy).await, own);
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_said_to_be_so() {
    let mut missing = of("legacy");
    missing.command.as_mut().unwrap().name = "no-such-program-anywhere".into();
    for settings in [of("dies"), missing] {
        let upstream = run(&settings);
        for deaths in 0..5 {
            assert!(!upstream.cannot_run(), "after {deaths}");
            assert_eq!(
                outcome_of(upstream.begin(Era::Legacy, call("echo"))).await,
                "upstream_unreachable none"
            );
        }
        assert!(upstream.cannot_run());
        // Without waiting for the next try.
        assert_eq!(
            outcome_of(upstream.begin(Era::Legacy, call("echo"))).await,
            "upstream_unreachable none"
        );
    }
}

/// Nobody has to call for it: who routes by readiness sends no call.
#[tokio::test]
async fn a_program_that_could_not_be_run_is_tried_again() {
    let folder = TempDir::new();
    let file = folder.path().join("lives");
    let mut settings = of("dies");
    let arguments = &mut settings.command.as_mut().unwrap().arguments;
    arguments.push(file.to_str().unwrap().to_owned());
    let upstream = run(&settings);
    cannot_be_run(&upstream, || call("echo")).await;
    std::fs::write(&file, "").unwrap();
    let waited = try_eventually(TRIES, async || !upstream.cannot_run()).await;
    waited.unwrap();
}

/// For the tries of a program that fails each time, with the pauses between them.
const TRIES: Duration = Duration::from_secs(20);

/// Calls until the program is said to be one that cannot be run.
async fn cannot_be_run(upstream: &Upstream, call: impl Fn() -> UpstreamRequest) {
    let tried = async || {
        if upstream.cannot_run() {
            return Ok(());
        }
        Err(outcome_of(upstream.begin(Era::Legacy, call())).await)
    };
    eventually(TRIES, "the program cannot be run", tried).await;
}

/// Also one that ends at what it does not know.
#[tokio::test]
async fn a_program_that_crashed_is_tried_again_with_a_handshake() {
    let upstream = run(&of("strict"));
    cannot_be_run(&upstream, || call_with("exit", "{}")).await;
    let tried = async || !upstream.cannot_run();
    eventually(TRIES, "the program can be run", tried).await;
}

#[tokio::test]
async fn a_program_that_crashes_on_every_call_cannot_be_run_until_it_answers() {
    let upstream = upstream(Era::Legacy);
    for _ in 0..5 {
        assert!(!upstream.cannot_run());
        outcome_of(upstream.begin(Era::Legacy, call_with("exit", "{}"))).await;
    }
    assert!(upstream.cannot_run());
    // The pause after the fifth is over by then; a call that is answered proves that it runs.
    eventually(TRIES, "a call is answered", async || {
        let echo = upstream.begin(Era::Legacy, call_with("echo", r#"{"text":"x"}"#));
        outcome_of(echo).await != "upstream_unreachable none"
    })
    .await;
    assert!(!upstream.cannot_run());
}
