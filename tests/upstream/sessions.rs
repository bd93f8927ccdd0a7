//! Sessions of a legacy server: opened, used again, lost, bounded.

use super::*;
use crate::server::INITIALIZED;

#[tokio::test]
async fn sessions_are_opened_used_again_and_given_back() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    for _ in 0..3 {
        assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
    }
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("notifications/initialized"), 1);
    let seen = server.last("tools/call");
    assert_eq!(seen.header("mcp-session-id"), "s1");
    assert_eq!(seen.header("mcp-protocol-version"), "2025-11-25");
    assert!(
        server
            .last("initialize")
            .body
            .contains(r#""capabilities":{"elicitation":{}}"#)
    );

    // Another caller, and the same with other capabilities, have their own.
    let mut other = call("t");
    other.caller = [2; 16];
    outcome_of(upstream.begin(Era::Legacy, other)).await;
    let mut other = call("t");
    other.capabilities = "{}".into();
    outcome_of(upstream.begin(Era::Legacy, other)).await;
    assert_eq!(server.count("initialize"), 3);
}

/// A server that has ended the connection and takes an older revision only.
#[tokio::test]
async fn initialize_is_sent_again_after_a_reset_and_after_a_refused_revision() {
    let server = Server::start(Reply::result(OK)).await;
    let refused =
        r#"{"code":-32602,"message":"Unsupported protocol version, supported: 2025-06-18"}"#;
    let answers = vec![
        Reply::raw(b""),
        Reply::error(200, refused),
        Reply::result(INITIALIZED).header("mcp-session-id", "s1"),
    ];
    server.on_method("initialize", answers);
    assert!(
        outcome(&upstream(&server), Era::Legacy)
            .await
            .starts_with("result")
    );
    assert_eq!(server.count("initialize"), 3);
    assert!(server.last("initialize").body.contains("2025-06-18"));
}

#[tokio::test]
async fn a_lost_session_is_opened_again_and_the_call_replayed() {
    for lost in [
        Reply::json(
            404,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
        ),
        Reply::json(404, "gone"),
        Reply::error(
            400,
            r#"{"code":-32000,"message":"Bad Request: No valid session ID provided"}"#,
        ),
        Reply::error(
            400,
            r#"{"code":-32000,"message":"Bad Request: Server not initialized"}"#,
        ),
        Reply::error(400, r#"{"code":-32600,"message":"Missing session ID"}"#),
        Reply::error(400, r#"{"code":-32006,"message":"x"}"#),
        Reply::json(400, "Invalid session ID"),
    ] {
        for mode in [SessionMode::Pool, SessionMode::Caller] {
            let server = Server::start(Reply::result(OK)).await;
            server.first(vec![lost.clone()]);
            let mut settings = settings(server.url());
            settings.session = mode;
            let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
            assert_eq!(
                outcome(&upstream, Era::Legacy).await,
                format!("result {OK}")
            );
            assert_eq!(server.count("initialize"), 2);
            assert_eq!(server.last("tools/call").header("mcp-session-id"), "s2");
        }
    }
    // Once, not for ever; and without effect.
    let server = Server::start(Reply::json(404, "gone")).await;
    assert_eq!(
        outcome(&upstream(&server), Era::Legacy).await,
        "upstream_http none"
    );
    assert_eq!(server.calls(), 2);
}

/// A 400 that names no session may come from the tool: the call is not sent again.
#[tokio::test]
async fn a_bad_request_in_plain_words_is_no_lost_session() {
    for body in ["Bad Request", r#"{"error":"bad arguments"}"#, ""] {
        let server = Server::start(Reply::result(OK)).await;
        server.first(vec![Reply::json(400, body)]);
        let said = outcome(&upstream(&server), Era::Legacy).await;
        assert_eq!(said, "upstream_http none", "{body}");
        assert_eq!((server.calls(), server.count("initialize")), (1, 1));
    }
}

#[tokio::test]
async fn a_shared_session_that_many_lose_is_opened_again_once() {
    const MANY: usize = 5;
    let server = Server::start(Reply::result(OK)).await;
    let mut settings = settings(server.url());
    settings.session = SessionMode::Caller;
    settings.sessions_max = 2;
    settings.session_wait = Duration::from_millis(200);
    let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
    assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
    // All of them are on the old session before one hears that it is lost.
    let lost = Reply::json(404, "gone").after(Duration::from_millis(300));
    server.first(vec![lost; MANY]);
    let calls = (0..MANY).map(|_| outcome(&upstream, Era::Legacy));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(outcome, format!("result {OK}"));
    }
    assert_eq!(server.calls(), 1 + 2 * MANY);
    assert_eq!(server.count("initialize"), 2);
    assert_eq!(server.last("tools/call").header("mcp-session-id"), "s2");
}

#[tokio::test]
async fn sessions_are_bounded() {
    let server = Server::start(Reply::hang()).await;
    let mut settings = settings(server.url());
    settings.sessions_max = 1;
    settings.session_wait = Duration::from_millis(200);
    let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
    let mut first = upstream.begin(Era::Legacy, call("t"));
    assert!(
        timeout(Duration::from_millis(300), first.events.next())
            .await
            .is_err()
    );
    assert_eq!(
        outcome(&upstream, Era::Legacy).await,
        "sessions_in_use none"
    );
    drop(first);
    server.always(Reply::result(OK));
    assert!(outcome(&upstream, Era::Legacy).await.starts_with("result"));
    // An idle session of another caller makes room.
    let mut other = call("t");
    other.caller = [2; 16];
    assert!(
        outcome_of(upstream.begin(Era::Legacy, other))
            .await
            .starts_with("result")
    );
    // The dropped call's, and that one.
    server.until(|s| s.count("DELETE") == 2).await;
}

#[tokio::test]
async fn one_caller_may_share_a_session() {
    let server = Server::start(Reply::result(OK).after(Duration::from_millis(50))).await;
    let mut settings = settings(server.url());
    settings.session = SessionMode::Caller;
    let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
    let calls = (0..10).map(|_| outcome(&upstream, Era::Legacy));
    for outcome in futures_util::future::join_all(calls).await {
        assert!(outcome.starts_with("result"));
    }
    assert_eq!(server.count("initialize"), 1);
    assert!(server.ids_are_unique());
}

/// Another caller's first call is not held up by a server that is slow to begin one session.
#[tokio::test]
async fn a_shared_session_that_is_slow_to_begin_is_waited_for_by_its_own_caller_only() {
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::json(405, ""));
    let mut settings = settings(server.url());
    settings.session = SessionMode::Caller;
    let up = Upstream::new(&settings, TaskTracker::new()).unwrap();
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy);
    let slow = Reply::result(INITIALIZED).after(Duration::from_secs(20));
    server.on_method("initialize", vec![slow, Reply::result(INITIALIZED)]);
    let asked = server.count("initialize") + 1;
    let mut first = up.begin(Era::Legacy, call("t"));
    tokio::select! {
        _ = next(&mut first) => panic!("it is slow"),
        () = server.until(|s| s.count("initialize") == asked) => {}
    }
    let other = UpstreamRequest {
        caller: [2; 16],
        ..call("t")
    };
    let other = outcome_of(up.begin(Era::Legacy, other));
    let others = timeout(Duration::from_secs(10), other).await;
    assert_eq!(others.expect("in time"), format!("result {OK}"));
}
