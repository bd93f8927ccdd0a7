//! Every way in which a line can go wrong, and the word for it.

use super::*;

#[tokio::test]
async fn every_fault_has_its_word_and_the_next_call_its_line() {
    let server = SseServer::start().await;
    let mut small = of(&server);
    small.message_bytes_max = 1 << 20;
    let upstream = run(&small);
    for (tool, arguments, expected) in [
        ("cut", "{}", "upstream_reset unknown"),
        (
            "unreadable",
            "{}",
            r#"result {"content":[{"type":"text","text":"\ufffd"}]}"#,
        ),
        ("not_utf8", "{}", "upstream_reset unknown"),
        ("long", r#"{"bytes":1048577}"#, "upstream_too_large unknown"),
    ] {
        assert_eq!(said(&upstream, tool, arguments).await, expected, "{tool}");
        on(&upstream).await;
    }
    assert_eq!(server.opened(), 4);
    assert_eq!(server.seen("cut").len(), 1);
}

#[tokio::test]
async fn an_answer_counts_though_an_unreadable_event_follows_in_its_frame() {
    let (server, upstream) = start().await;
    assert_eq!(text(&upstream, "last_words", "{}").await, "last");
    // That stream has ended.
    on(&upstream).await;
    assert_eq!(server.opened(), 2);
}

/// The stream goes on, and so do the calls beside the one whose answer is too large.
#[tokio::test]
async fn a_result_that_is_too_large_ends_its_own_call_only() {
    let server = SseServer::start().await;
    let mut small = of(&server);
    small.message_bytes_max = 1 << 20;
    let upstream = run(&small);
    let mut neighbour = begin(&upstream, "hold", r#"{"nonce":"n"}"#);
    assert!(matches!(neighbour.events.next().await, Some(Event::Sent)));
    server.until(|server| !server.seen("hold").is_empty()).await;
    let end = said(&upstream, "large", r#"{"bytes":3000000}"#).await;
    assert_eq!(end, "upstream_too_large unknown");
    on(&upstream).await;
    let released = text(&upstream, "release", r#"{"nonces":["n"]}"#).await;
    assert_eq!(released, "released");
    assert_eq!(text_of(neighbour).await, "n");
    // No stream ended.
    assert_eq!(u64::try_from(server.open()).unwrap(), server.opened());
}

#[tokio::test]
async fn what_is_no_answer_is_skipped() {
    let (server, upstream) = start().await;
    assert_eq!(text(&upstream, "junk", "{}").await, "clean");
    assert_eq!(text(&upstream, "twice", "{}").await, "first");
    on(&upstream).await;
    let mut wrong = begin(&upstream, "wrong_id", "{}");
    assert!(matches!(wrong.events.next().await, Some(Event::Sent)));
    let heard = async {
        tokio::select! {
            biased;
            event = wrong.events.next() => panic!("{event:?}"),
            () = server.until(|server| !server.seen("wrong_id").is_empty()) => {}
        }
    };
    heard.await;
    drop(wrong);
    on(&upstream).await;
}

/// What was not taken is another line's; what may have been is not sent again.
#[tokio::test]
async fn a_post_that_is_refused() {
    let rpc = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"mind"}}"#;
    let lost =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Session not found"}}"#;
    for (refusal, expected, heard) in [
        (Refusal::Status(404, "Session not found"), "", 1),
        (Refusal::Status(400, "No transport found"), "", 1),
        (Refusal::Status(410, "Session expired"), "", 1),
        (Refusal::Status(400, lost), "", 1),
        (Refusal::Status(404, lost), "", 1),
        (Refusal::Status(500, "oops"), "upstream_http unknown", 0),
        (Refusal::Status(302, "there"), "upstream_http unknown", 0),
        (Refusal::Status(408, "slow"), "upstream_http unknown", 0),
        (Refusal::Status(400, "Bad Request"), "upstream_http none", 0),
        (Refusal::Status(410, "Gone"), "upstream_http unknown", 0),
        (Refusal::Status(413, "too large"), "upstream_http none", 0),
        (Refusal::Reset, "upstream_reset unknown", 1),
        (
            Refusal::Status(400, rpc),
            r#"error 400 {"code":-32602,"message":"mind"}"#,
            0,
        ),
    ] {
        let (server, upstream) = start().await;
        on(&upstream).await;
        server.refuse("tools/call", refusal.clone());
        let outcome = said(&upstream, "twice", "{}").await;
        if expected.is_empty() {
            assert!(outcome.starts_with("result"), "{refusal:?}: {outcome}");
            assert_eq!(server.opened(), 2, "{refusal:?}");
        } else {
            assert_eq!(outcome, expected, "{refusal:?}");
        }
        assert_eq!(server.seen("twice").len(), heard, "{refusal:?}");
        on(&upstream).await;
    }
}

/// Words that prove nothing by themselves do if a ping is refused in the same words.
#[tokio::test]
async fn a_line_that_is_lost_in_words_is_left() {
    let rpc = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Invalid session"}}"#;
    for refusal in [
        Refusal::Status(500, "Could not find session"),
        Refusal::Status(401, rpc),
        Refusal::Status(500, rpc),
        Refusal::Status(410, "Gone"),
    ] {
        let (server, upstream) = start().await;
        on(&upstream).await;
        server.refuse("tools/call", refusal.clone());
        server.refuse("ping", refusal.clone());
        on(&upstream).await;
        assert_eq!(server.opened(), 2, "{refusal:?}");

        // The line lives, so the words are about something else.
        server.refuse("tools/call", refusal.clone());
        let outcome = said(&upstream, "echo", "{}").await;
        assert!(!outcome.starts_with("result"), "{refusal:?}: {outcome}");
        on(&upstream).await;
        assert_eq!(server.opened(), 2, "{refusal:?}");

        // It may be lost, but the call may have run.
        server.refuse("tools/call", Refusal::Status(500, "oops"));
        server.refuse("ping", Refusal::Status(500, "oops"));
        assert_eq!(said(&upstream, "echo", "{}").await, "upstream_http unknown");
        server.until(|server| server.open() == 0).await;
        on(&upstream).await;
        assert_eq!(server.opened(), 3, "{refusal:?}");
    }
}

#[tokio::test]
async fn a_server_that_never_takes_it_is_not_asked_for_ever() {
    let (server, upstream) = start().await;
    for _ in 0..10 {
        server.refuse("tools/call", Refusal::Status(404, "no"));
    }
    assert_eq!(said(&upstream, "echo", "{}").await, "upstream_http none");
    assert_eq!(server.opened(), 3);
}

/// The other calls of a line that is not known to one POST go on: it may have met another server.
#[tokio::test]
async fn a_refused_post_ends_no_other_call() {
    let server = SseServer::start().await;
    let mut shared = of(&server);
    shared.session = SessionMode::Caller;
    let upstream = run(&shared);
    let held = held(&server, &upstream, "a").await;
    server.refuse("tools/call", Refusal::Status(404, "Session not found"));
    on(&upstream).await;
    assert_eq!(server.opened(), 2);
    release(&upstream, "a").await;
    assert_eq!(text_of(held).await, "a");
    // With its last call the old line is closed.
    server.until(|server| server.open() == 1).await;
}

#[tokio::test]
async fn all_calls_of_a_cut_line_end_and_it_is_opened_anew() {
    let server = SseServer::start().await;
    let mut shared = of(&server);
    shared.session = SessionMode::Caller;
    let upstream = run(&shared);
    let mut calls = Vec::new();
    for n in 0..20 {
        calls.push(held(&server, &upstream, &format!("n{n}")).await);
    }
    server.cut();
    for call in calls {
        assert_eq!(outcome_of(call).await, "upstream_reset unknown");
    }
    on(&upstream).await;
    assert_eq!(server.opened(), 2);
    assert_eq!(server.seen("hold").len(), 20);
}

/// A handshake whose stream is cut, or whose message is refused, ran nothing.
#[tokio::test]
async fn a_handshake_that_fails() {
    let (server, upstream) = start().await;
    server.refuse("initialize", Refusal::Status(500, "oops"));
    assert_eq!(said(&upstream, "echo", "{}").await, "upstream_http none");
    on(&upstream).await;
    assert_eq!(server.opened(), 2);
    server.until(|server| server.open() == 1).await;
}

#[tokio::test]
async fn an_endpoint_elsewhere_is_not_used() {
    let (elsewhere, _) = start().await;
    let (server, upstream) = start().await;
    for endpoint in [
        format!("http://{}/message?sessionId=ID", elsewhere.address),
        format!(
            "http://localhost:{}/message?sessionId=ID",
            server.address.port()
        ),
        "file:///etc/passwd".to_owned(),
    ] {
        server.endpoint(&endpoint);
        assert_eq!(
            said(&upstream, "echo", "{}").await,
            "upstream_invalid none",
            "{endpoint}"
        );
    }
    assert!(elsewhere.credentials().is_empty() && server.credentials().is_empty());
    server.endpoint("/message?sessionId=ID");
    on(&upstream).await;
}

#[tokio::test]
async fn a_stream_that_names_no_endpoint_is_given_up() {
    let (server, upstream) = start().await;
    server.names_no_endpoint();
    let dialled = begin(&upstream, "echo", "{}");
    assert_eq!(outcome_of(dialled).await, "upstream_unreachable none");
    assert!(!upstream.cannot_run());
    server.until(|server| server.open() == 0).await;
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    let (server, upstream) = start().await;
    on(&upstream).await;
    let address = server.address.to_string();
    drop(server);
    // By then the end of the stream was heard.
    assert!(upstream.look().await.is_err());
    assert_eq!(
        said(&upstream, "echo", "{}").await,
        "upstream_unreachable none"
    );
    assert!(!upstream.cannot_run());
    let _server = SseServer::at(&address).await;
    on(&upstream).await;
    assert!(upstream.look().await.is_ok());
}
