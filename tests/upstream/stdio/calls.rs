//! What a call says and hears while it is under way.

use rustix::process::{Pid, Signal, kill_process};

use super::*;

#[tokio::test]
async fn answers_and_errors_are_those_of_the_call() {
    for era in BOTH {
        let upstream = upstream(era);
        assert_eq!(
            text(&upstream, era, "echo", r#"{"text":"é\n\"x"}"#).await,
            "é\n\"x"
        );
        assert_eq!(
            outcome_of(upstream.begin(era, call_with("none", "{}"))).await,
            r#"error 200 {"code": -32602, "message": "Unknown tool: none"}"#
        );
        let seen = seen(&upstream, era).await;
        let handshakes = seen.iter().filter(|m| m["method"] == "initialize").count();
        assert_eq!(handshakes, usize::from(era == Era::Legacy));
        assert!(!format!("{seen:?}").contains("/tasks"));
    }
}

#[tokio::test]
async fn a_thousand_calls_share_a_child_and_no_answer_crosses() {
    for era in BOTH {
        let upstream = upstream(era);
        let own = pid(&upstream, era).await;
        let mut calls = Vec::new();
        for n in 0..1000 {
            let nonce = format!(r#"{{"nonce":"n{n}"}}"#);
            calls.push(upstream.begin(era, call_with("hold", &nonce)));
        }
        let all = futures_util::future::join_all(calls.into_iter().map(text_of));
        let release = async {
            // Begun after all others were polled once, and written after them.
            let nonces: Vec<String> = (0..1000).rev().map(|n| format!("\"n{n}\"")).collect();
            let nonces = format!(r#"{{"nonces":[{}]}}"#, nonces.join(","));
            text(&upstream, era, "release", &nonces).await
        };
        let (texts, released) = tokio::join!(all, release);
        assert_eq!(released, "released");
        for (n, text) in texts.iter().enumerate() {
            assert_eq!(*text, format!("n{n}"));
        }
        assert_eq!(pid(&upstream, era).await, own);
    }
}

#[tokio::test]
async fn progress_and_logs_are_those_of_the_call() {
    for era in BOTH {
        let upstream = upstream(era);
        let mut exchange = upstream.begin(era, call_with("progress", "{}"));
        for step in [1, 3] {
            let Event::Progress(params) = next(&mut exchange).await else {
                panic!("no progress")
            };
            assert!(params.get().contains(&format!("\"progress\": {step}")));
        }
        assert!(matches!(next(&mut exchange).await, Event::Result(_)));
        assert!(exchange.events.next().await.is_none());

        let mut quiet = call_with("progress", "{}");
        quiet.wants_progress = false;
        let mut exchange = upstream.begin(era, quiet);
        assert!(matches!(next(&mut exchange).await, Event::Result(_)));

        let mut logged = call_with("logs", "{}");
        logged.log_level = Some("warning".into());
        let mut exchange = upstream.begin(era, logged);
        assert!(matches!(next(&mut exchange).await, Event::Log(p) if p.get().contains("much")));
        assert!(matches!(next(&mut exchange).await, Event::Result(_)));
    }
}

/// As programs do that write what they have to say at the end.
#[tokio::test]
async fn what_is_said_at_once_is_heard_in_full() {
    // Many in one read, and a few in each of some.
    for (era, bytes) in [(Era::Modern, 0), (Era::Legacy, 0), (Era::Legacy, 10_000)] {
        let upstream = upstream(era);
        let mut logged = call_with("burst", &format!(r#"{{"bytes":{bytes}}}"#));
        logged.log_level = Some("warning".into());
        let mut exchange = upstream.begin(era, logged);
        for n in 0..50 {
            let said = next(&mut exchange).await;
            let is_next = |log: &str| log.contains(&format!("\"data\": [{n}, "));
            assert!(
                matches!(&said, Event::Log(log) if is_next(log.get())),
                "{n}"
            );
        }
        assert!(matches!(next(&mut exchange).await, Event::Result(_)));
    }
}

#[tokio::test]
async fn a_question_is_that_of_the_only_call() {
    let upstream = upstream(Era::Legacy);
    let mut exchange = upstream.begin(Era::Legacy, call_with("ask", "{}"));
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    assert_eq!(
        (&*question.id, &*question.method),
        (r#""q3""#, "elicitation/create")
    );
    let answer = Answer::Result(r#"{"action":"accept","content":{"name":"Ada"}}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(text_of(exchange).await, "Ada");
}

#[tokio::test]
async fn a_question_that_names_no_call_is_refused_while_several_run() {
    let upstream = with_one_child(Era::Legacy);
    let held = begun(
        &upstream,
        Era::Legacy,
        call_with("hold", r#"{"nonce":"a"}"#),
    )
    .await;
    assert_eq!(
        text(&upstream, Era::Legacy, "ask", "{}").await,
        r#"{"refused": -32603}"#
    );
    // A call that was given up may still be the one that asks.
    drop(held);
    assert_eq!(
        text(&upstream, Era::Legacy, "ask", "{}").await,
        r#"{"refused": -32603}"#
    );
    // Its late answer shows that it is over.
    text(&upstream, Era::Legacy, "release", r#"{"nonces":["a"]}"#).await;
    let mut exchange = upstream.begin(Era::Legacy, call_with("ask", "{}"));
    assert!(matches!(next(&mut exchange).await, Event::Question(_)));
}

/// Servers do not answer a cancelled call, and a client that cancelled makes further calls.
#[tokio::test]
async fn after_a_call_that_was_given_up_the_next_one_can_ask() {
    for is_cancelled in [true, false] {
        let upstream = upstream(Era::Legacy);
        let own = pid(&upstream, Era::Legacy).await;
        let hold = call_with("hold", r#"{"nonce":"a"}"#);
        let held = begun(&upstream, Era::Legacy, hold).await;
        if is_cancelled {
            held.control.cancel().await;
        }
        drop(held);
        let mut next_one = upstream.begin(Era::Legacy, call_with("ask", "{}"));
        let asked = next(&mut next_one).await;
        assert!(matches!(asked, Event::Question(_)), "{asked:?}");
        assert_ne!(pid(&upstream, Era::Legacy).await, own);
    }
}

/// A modern server asks by its results, and who declared nothing is asked nothing.
#[tokio::test]
async fn where_nobody_is_asked_a_call_that_was_given_up_costs_no_child() {
    for (era, capabilities) in [(Era::Modern, r#"{"elicitation":{}}"#), (Era::Legacy, "{}")] {
        let upstream = upstream(era);
        let of = |tool: &str, arguments: &str| UpstreamRequest {
            capabilities: capabilities.into(),
            ..call_with(tool, arguments)
        };
        let pid = || text_of(upstream.begin(era, of("pid", "{}")));
        let own = pid().await;
        let mut held = upstream.begin(era, of("hold", r#"{"nonce":"a"}"#));
        assert!(matches!(held.events.next().await, Some(Event::Sent)));
        // What is answered after it shows that the child has it.
        assert_eq!(pid().await, own);
        drop(held);
        assert_eq!(pid().await, own, "{era:?}");
    }
}

/// The questions of a call that waits for its client's answer stay its own: what comes after it goes
/// to another child, where there may be one.
#[tokio::test]
async fn a_call_that_asks_has_its_child_to_itself() {
    for (children_max, session, may_have_another) in [
        (2, SessionMode::Pool, true),
        (1, SessionMode::Pool, false),
        (2, SessionMode::Caller, false),
    ] {
        let mut settings = of("legacy");
        settings.children_max = children_max;
        settings.session = session;
        let upstream = run(&settings);
        upstream.era(None).await.unwrap();
        let own = pid(&upstream, Era::Legacy).await;
        let mut first = upstream.begin(Era::Legacy, call_with("ask_twice", "{}"));
        let Event::Question(question) = next(&mut first).await else {
            panic!("no question")
        };
        let other = pid(&upstream, Era::Legacy).await;
        assert_eq!(other != own, may_have_another);
        let mut second = upstream.begin(Era::Legacy, call_with("ask", "{}"));
        if may_have_another {
            assert!(matches!(next(&mut second).await, Event::Question(_)));
        } else {
            assert_eq!(text_of(second).await, r#"{"refused": -32603}"#);
        }
        let answer = Answer::Result(r#"{"action":"accept","content":{"name":"Ada"}}"#.into());
        first.control.answer(&question.id, answer).await.unwrap();
        assert!(matches!(next(&mut first).await, Event::Question(_)));
    }
}

/// A server may wait for its client's answer and read no other request.
#[tokio::test]
async fn a_list_is_not_asked_for_where_a_call_waits_for_its_client() {
    let upstream = upstream(Era::Legacy);
    let own = pid(&upstream, Era::Legacy).await;
    let mut asking = upstream.begin(Era::Legacy, call_with("ask", "{}"));
    let Event::Question(question) = next(&mut asking).await else {
        panic!("no question")
    };
    let signalled = |signal| {
        let pid = Pid::from_raw(own.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    signalled(Signal::STOP);
    let list = UpstreamRequest {
        method: "tools/list".into(),
        params: "{}".into(),
        ..call_with("ask", "{}")
    };
    let listed = timeout(Duration::from_secs(15), async {
        outcome_of(upstream.begin(Era::Legacy, list)).await
    });
    let listed = listed.await;
    signalled(Signal::CONT);
    assert!(listed.expect("in time").starts_with("result"));
    let answer = Answer::Result(r#"{"action":"accept","content":{"name":"Ada"}}"#.into());
    asking.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(text_of(asking).await, "Ada");
}

#[tokio::test]
async fn questions_that_the_client_cannot_answer_are_refused() {
    let upstream = upstream(Era::Legacy);
    for (method, answer) in [
        ("sampling/createMessage", r#"{"refused": -32601}"#),
        ("roots/list", r#"{"refused": -32601}"#),
        ("other/thing", r#"{"refused": -32601}"#),
        ("ping", "{}"),
    ] {
        let arguments = format!(r#"{{"method":"{method}"}}"#);
        let said = text(&upstream, Era::Legacy, "ask", &arguments).await;
        assert_eq!(said, answer, "{method}");
    }
    // A modern server asks by its result only.
    let modern = super::upstream(Era::Modern);
    assert_eq!(
        text(&modern, Era::Modern, "ask", "{}").await,
        r#"{"refused": -32601}"#
    );
}

#[tokio::test]
async fn a_modern_question_is_a_result_and_its_answer_a_retry() {
    let upstream = upstream(Era::Modern);
    let asked = outcome_of(upstream.begin(Era::Modern, call_with("input", "{}"))).await;
    assert!(asked.contains("input_required"), "{asked}");
    let mut retry = call_with("input", "{}");
    retry.retry = Some(std::sync::Arc::new(Retry {
        input_responses: r#"{"who":{"action":"accept","content":{"name":"Ada"}}}"#.into(),
        request_state: Some("!".into()),
    }));
    assert_eq!(text_of(upstream.begin(Era::Modern, retry)).await, "Ada!");
}

#[tokio::test]
async fn a_cancel_is_told_in_both_eras() {
    for era in BOTH {
        for by_control in [true, false] {
            let upstream = with_one_child(era);
            let exchange = begun(&upstream, era, call_with("hold", r#"{"nonce":"a"}"#)).await;
            if by_control {
                exchange.control.cancel().await;
            }
            drop(exchange);
            let seen = seen(&upstream, era).await;
            let call = seen.iter().find(|m| m["params"]["name"] == "hold").unwrap();
            let cancelled: Vec<_> = seen
                .iter()
                .filter(|m| m["method"] == "notifications/cancelled")
                .map(|m| &m["params"]["requestId"])
                .collect();
            // A legacy call without a waiting client runs on until it is cancelled.
            let told = by_control || era == Era::Modern;
            assert_eq!(cancelled.len(), usize::from(told), "{era:?} {by_control}");
            assert!(cancelled.iter().all(|id| **id == call["id"]));
        }
    }
}

#[tokio::test]
async fn each_caller_has_a_child_and_so_has_each_set_of_capabilities() {
    for era in BOTH {
        let upstream = upstream(era);
        let own = pid(&upstream, era).await;
        assert_eq!(own, pid(&upstream, era).await);
        let mut other = call_with("pid", "{}");
        other.caller = [2; 16];
        let other = text_of(upstream.begin(era, other)).await;
        assert_ne!(own.to_string(), other);
        let mut mute = call_with("pid", "{}");
        mute.capabilities = "{}".into();
        let mute = text_of(upstream.begin(era, mute)).await;
        // A modern server hears them with each request.
        assert_eq!(own.to_string() == mute, era == Era::Modern);
    }
}

#[tokio::test]
async fn the_server_is_known_and_its_era_found() {
    for (mode, era) in [
        ("legacy", Era::Legacy),
        ("modern", Era::Modern),
        ("dual", Era::Modern),
    ] {
        let upstream = run(&of(mode));
        assert_eq!(upstream.era(None).await.unwrap(), era);
        let known = upstream.discover([1; 16], None, "{}").await.unwrap();
        assert!(
            known
                .server_info
                .as_ref()
                .unwrap()
                .get()
                .contains("stdio-fixture")
        );
        assert_eq!(known.supported_versions.is_some(), era == Era::Modern);
        assert_eq!(known.instructions.is_some(), era == Era::Legacy);
        let tools = upstream.tools([1; 16], None, "{}".into()).await.unwrap();
        assert!(tools.get("echo").is_some());
    }
}

/// It hears a handshake after three seconds of silence.
#[tokio::test]
async fn a_server_that_ignores_what_it_does_not_know_is_legacy() {
    let upstream = run(&of("deaf"));
    assert_eq!(upstream.era(None).await.unwrap(), Era::Legacy);
}

/// It is asked `initialize` next, and its deaths of the question are none of a wreck.
#[tokio::test]
async fn a_server_that_ends_at_what_it_does_not_know_is_legacy() {
    let mut settings = of("strict");
    settings.children_max = 1;
    let upstream = run(&settings);
    for _ in 0..6 {
        assert!(upstream.look().await.is_ok());
        assert!(!upstream.cannot_run());
    }
    assert_eq!(upstream.known_era(), Some(Era::Legacy));
    assert_eq!(
        text(&upstream, Era::Legacy, "echo", r#"{"text":"on"}"#).await,
        "on"
    );
}

#[tokio::test]
async fn changes_are_heard() {
    for era in BOTH {
        let upstream = upstream(era);
        assert_eq!(upstream.era(None).await.unwrap(), era);
        let mut listening: Listening =
            upstream.listen([1; 16], None, r#"{"elicitation":{}}"#.into(), FILTER.into());
        let first = timeout(Duration::from_secs(20), listening.next()).await;
        let Ok(Some(ListenEvent::Acknowledged(honoured))) = first else {
            panic!("{first:?}")
        };
        assert_eq!(honoured.replace(' ', ""), r#"{"toolsListChanged":true}"#);
        text(&upstream, era, "changed", "{}").await;
        let heard = timeout(Duration::from_secs(20), listening.next()).await;
        assert!(matches!(
            heard,
            Ok(Some(ListenEvent::Notification { method, .. })) if method == "notifications/tools/list_changed"
        ));
        // The end of the child is the end of the subscription.
        outcome_of(upstream.begin(era, call_with("exit", "{}"))).await;
        let ended = timeout(Duration::from_secs(20), listening.next()).await;
        assert!(matches!(ended, Ok(Some(ListenEvent::Ended))), "{ended:?}");
        assert!(listening.next().await.is_none());
    }
}
