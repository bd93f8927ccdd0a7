//! What a call says and hears while it is under way.

use super::*;

#[tokio::test]
async fn progress_and_logs_are_those_of_the_call() {
    for era in BOTH {
        let server = Server::start(Reply::events(&[
            r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#,
            r#"{"method":"notifications/progress","params":{"progressToken":"x","progress":2}}"#,
            r#"{"method":"notifications/message","params":{"level":"debug","data":1}}"#,
            r#"{"method":"notifications/message","params":{"level":"error","data":2}}"#,
            r#"{"id":ID,"result":{}}"#,
        ]))
        .await;
        let upstream = upstream(&server);
        let mut outgoing = call("t");
        outgoing.log_level = Some("info".into());
        let mut exchange = upstream.begin(era, outgoing);
        assert!(
            matches!(next(&mut exchange).await, Event::Progress(p) if p.get().contains("\"progress\":1"))
        );
        assert!(matches!(next(&mut exchange).await, Event::Log(p) if p.get().contains("error")));
        assert!(matches!(next(&mut exchange).await, Event::Result(_)));
        assert!(exchange.events.next().await.is_none());

        let mut outgoing = call("t");
        outgoing.wants_progress = false;
        let mut exchange = upstream.begin(era, outgoing);
        assert!(
            matches!(next(&mut exchange).await, Event::Result(_)),
            "nothing else was asked for"
        );
        assert!(!server.last("tools/call").body.contains("progressToken"));
    }
}

#[tokio::test]
async fn a_modern_request_mirrors_its_body() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    let mut outgoing = call("é");
    outgoing.credentials = Some(HeaderValue::from_static("Bearer t").into());
    outgoing.param_headers = [(
        "mcp-param-x".parse().unwrap(),
        HeaderValue::from_static("1"),
    )]
    .into();
    outgoing.params = r#"{"name":"é","task":{},"_meta":{"progressToken":"theirs",
        "io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#.into();
    outgoing.retry = Some(std::sync::Arc::new(Retry {
        input_responses: r#"{"k":{}}"#.into(),
        request_state: Some("s".into()),
    }));
    outcome_of(upstream.begin(Era::Modern, outgoing)).await;
    let seen = server.last("tools/call");
    assert_eq!(seen.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(seen.header("mcp-method"), "tools/call");
    assert_eq!(seen.header("mcp-name"), "=?base64?w6k=?=");
    assert_eq!(seen.header("mcp-param-x"), "1");
    assert_eq!(seen.header("accept"), "application/json, text/event-stream");
    assert_eq!(seen.header("authorization"), "Bearer t");
    assert_eq!(seen.header("host"), server.authority());
    assert!(!seen.body.contains("/tasks") && !seen.body.contains("\"task\""));
    assert!(!seen.body.contains("theirs"));
    assert!(
        seen.body
            .contains(r#""requestState":"s","inputResponses":{"k":{}}"#)
    );
}

#[tokio::test]
async fn dropping_a_modern_call_closes_its_connection() {
    for by_control in [false, true] {
        let server = Server::start(Reply::hang()).await;
        let upstream = upstream(&server);
        let mut exchange = upstream.begin(Era::Modern, call("t"));
        let waiting = timeout(Duration::from_millis(300), exchange.events.next());
        assert!(waiting.await.is_err());
        if by_control {
            exchange.control.cancel().await;
        }
        drop(exchange);
        server.until(|s| s.hung_up() == 1).await;
    }
}

#[tokio::test]
async fn connections_are_used_again() {
    for era in BOTH {
        for reply in [
            Reply::result(OK),
            Reply::events(&[r#"{"id":ID,"result":{}}"#]),
        ] {
            let server = Server::start(reply.clone()).await;
            let upstream = upstream(&server);
            for _ in 0..10 {
                assert!(outcome(&upstream, era).await.starts_with("result"));
            }
            // The end of an event stream may come after the next request went out. In the legacy
            // era the handshake is a request more, and the session's own stream stays open.
            let more = usize::from(era == Era::Legacy);
            assert!(
                server.connections() <= 3 + more,
                "{era:?} {} {reply:?}",
                server.connections()
            );
        }
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_used() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    for _ in 0..20 {
        assert!(outcome(&upstream, Era::Modern).await.starts_with("result"));
        server.close_connections().await;
    }
    assert_eq!(server.calls(), 20);
}

#[tokio::test]
async fn a_legacy_question_is_answered_on_a_post() {
    let server = Server::start(Reply::asks(
        r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"m"}}"#,
    ))
    .await;
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, call("t"));
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    assert_eq!(
        (&*question.id, &*question.method),
        ("0", "elicitation/create")
    );
    let answer = Answer::Result(r#"{"action":"decline"}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert!(matches!(next(&mut exchange).await, Event::Result(_)));
    assert_eq!(
        server.last("answer").body,
        r#"{"jsonrpc":"2.0","id":0,"result":{"action":"decline"}}"#
    );
}

#[tokio::test]
async fn questions_for_nobody_are_refused_and_pings_answered() {
    for (ask, answer) in [
        ("ping", r#""result":{}"#),
        ("sampling/createMessage", "-32601"),
        ("other/thing", "-32601"),
    ] {
        let question = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{ask}"}}"#);
        let server = Server::start(Reply::asks(&question)).await;
        assert!(
            outcome(&upstream(&server), Era::Legacy)
                .await
                .starts_with("result")
        );
        let seen = server.last("answer").body;
        assert!(
            seen.contains(answer) && seen.contains(r#""id":"q""#),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn a_cancelled_legacy_call_is_told_and_its_session_given_up() {
    let server = Server::start(Reply::sse_open(": hello\n\n")).await;
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, call("t"));
    assert!(
        timeout(Duration::from_millis(300), exchange.events.next())
            .await
            .is_err()
    );
    exchange.control.cancel().await;
    let call_id = server.last("tools/call").id();
    let cancelled = server.last("notifications/cancelled");
    assert!(
        cancelled
            .body
            .contains(&format!(r#""requestId":{call_id},"#)),
        "{}",
        cancelled.body
    );
    drop(exchange);
    server.until(|s| s.count("DELETE") == 1).await;
    server.always(Reply::result(OK));
    outcome(&upstream, Era::Legacy).await;
    assert_eq!(server.count("initialize"), 2);
}

#[tokio::test]
async fn a_cut_stream_is_resumed_and_runs_once() {
    for cut in [
        "id: 7\nretry: 50\ndata: \n\n",
        "id: 7\nretry: 50\ndata: {\"method\":\"notifications/progress\",\"params\":{\"progressToken\":ID,\"progress\":1}}\n\n",
    ] {
        let server = Server::start(Reply::sse(cut)).await;
        server.on_resume(vec![
            Reply::json(409, ""),
            Reply::sse("id: 8\ndata: \n\n"),
            Reply::events(&[r#"{"id":ID,"result":{"resumed":true}}"#]),
        ]);
        assert_eq!(
            outcome(&upstream(&server), Era::Legacy).await,
            r#"result {"resumed":true}"#
        );
        assert_eq!(server.calls(), 1);
        assert_eq!(server.last("resume").header("last-event-id"), "8");
        assert_eq!(server.last("resume").header("mcp-session-id"), "s1");
    }
    for status in [404, 405] {
        let server = Server::start(Reply::sse("id: 7\nretry: 50\ndata: \n\n")).await;
        server.on_resume(vec![Reply::json(status, "")]);
        assert_eq!(
            outcome(&upstream(&server), Era::Legacy).await,
            "upstream_reset unknown"
        );
    }
    // A modern stream cannot be resumed.
    let server = Server::start(Reply::sse("id: 7\ndata: \n\n")).await;
    assert_eq!(
        outcome(&upstream(&server), Era::Modern).await,
        "upstream_reset unknown"
    );
    assert_eq!(server.count("GET") + server.count("resume"), 0);
}

#[tokio::test]
async fn the_log_level_is_set_once() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    for level in ["info", "info", "error"] {
        let mut outgoing = call("t");
        outgoing.log_level = Some(level.into());
        outcome_of(upstream.begin(Era::Legacy, outgoing)).await;
    }
    assert_eq!(server.count("logging/setLevel"), 2);
}
