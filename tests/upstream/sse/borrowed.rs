//! Calls of ours on a legacy client's own line.

use std::sync::Arc;

use hyper::HeaderMap;
use raincheck::upstream::client_session::ClientSession;
use raincheck::upstream::line::session::LineSession;

use super::*;

fn session_of(upstream: &Upstream, id: &str, caller: u8) -> Option<ClientSession> {
    let mut headers = HeaderMap::new();
    headers.insert("mcp-session-id", id.parse().unwrap());
    upstream.client_session(&headers, [caller; 16])
}

/// A client's session, and as raincheck borrows it.
async fn open(upstream: &Upstream) -> (Arc<LineSession>, ClientSession) {
    let opened = upstream.open_session([1; 16], None, LineChoice::Any).await;
    let (id, own) = opened.expect("a session");
    assert!(session_of(upstream, &id, 2).is_none());
    assert!(session_of(upstream, "none", 1).is_none());
    (own, session_of(upstream, &id, 1).expect("it is known"))
}

fn on(session: &ClientSession, tool: &str, arguments: &str) -> UpstreamRequest {
    UpstreamRequest {
        pin: Some(session.pin()),
        ..call_with(tool, arguments)
    }
}

#[tokio::test]
async fn they_run_beside_the_client_s_under_strings_of_ours() {
    let (server, upstream) = start().await;
    let (own, session) = open(&upstream).await;
    let call = |tool, arguments| upstream.begin(LEGACY, on(&session, tool, arguments));
    let line = text_of(call("line", "{}")).await;
    assert_eq!(text_of(call("line", "{}")).await, line);
    assert_ne!(text(&upstream, "line", "{}").await, line);
    let seen = server.seen("line");
    assert!(seen[0]["id"].as_str().unwrap().starts_with("raincheck/"));
    assert_ne!(seen[0]["id"], seen[1]["id"]);
    let mut exchange = call("progress", "{}");
    for step in [1, 3] {
        let Event::Progress(params) = next(&mut exchange).await else {
            panic!("no progress")
        };
        let params: Value = serde_json::from_str(params.get()).unwrap();
        assert_eq!(params["progress"], step);
    }
    assert!(outcome_of(exchange).await.contains("done"));
    // A message that names no known request belongs to the client.
    let mut mailbox = own.read_mailbox();
    assert!(mailbox.next().await.unwrap().contains("foreign"));
    let outcome = outcome_of(call("none", "{}")).await;
    assert!(outcome.starts_with("error 200"), "{outcome}");
}

#[tokio::test]
async fn a_question_is_theirs_while_no_other_may_ask() {
    let (server, upstream) = start().await;
    let (own, session) = open(&upstream).await;
    let call = |tool, arguments| upstream.begin(LEGACY, on(&session, tool, arguments));
    let mut asking = call("ask", "{}");
    let Event::Question(question) = next(&mut asking).await else {
        panic!("no question")
    };
    let answer = r#"{"action":"accept","content":{"name":"Ada"}}"#;
    let answer = Answer::Result(answer.into());
    asking.control.answer(&question.id, answer).await.unwrap();
    assert!(outcome_of(asking).await.contains("Ada"));
    // With two of them it cannot be told: it is for the client.
    let mut held = call("hold", r#"{"nonce":"a"}"#);
    let mut asking = call("ask", "{}");
    assert!(matches!(held.events.next().await, Some(Event::Sent)));
    server.until(|server| !server.seen("hold").is_empty()).await;
    assert!(matches!(asking.events.next().await, Some(Event::Sent)));
    let mut mailbox = own.read_mailbox();
    assert!(mailbox.next().await.unwrap().contains("elicitation/create"));
}

#[tokio::test]
async fn a_cancel_is_told_on_the_line() {
    let (server, upstream) = start().await;
    let (_own, session) = open(&upstream).await;
    let mut held = upstream.begin(LEGACY, on(&session, "hold", r#"{"nonce":"a"}"#));
    assert!(matches!(held.events.next().await, Some(Event::Sent)));
    server.until(|server| !server.seen("hold").is_empty()).await;
    held.control.cancel().await;
    let told = |server: &SseServer| !server.seen("notifications/cancelled").is_empty();
    server.until(told).await;
    let cancelled = &server.seen("notifications/cancelled")[0];
    assert_eq!(
        cancelled["params"]["requestId"],
        server.seen("hold")[0]["id"]
    );
}

#[tokio::test]
async fn they_end_with_the_session() {
    for by_client in [true, false] {
        let (server, upstream) = start().await;
        let (_own, session) = open(&upstream).await;
        let held = upstream.begin(LEGACY, on(&session, "hold", r#"{"nonce":"a"}"#));
        let ended = async {
            server.until(|server| !server.seen("hold").is_empty()).await;
            if by_client {
                session.end();
            } else {
                server.cut();
            }
        };
        let (outcome, ()) = futures_util::future::join(outcome_of(held), ended).await;
        assert_eq!(outcome, "upstream_reset unknown");
        let late = upstream.begin(LEGACY, on(&session, "echo", "{}"));
        assert_eq!(outcome_of(late).await, "upstream_reset none");
    }
}
