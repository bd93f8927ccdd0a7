//! What a call says and hears while it is under way, and over which line.

use super::*;

#[tokio::test]
async fn answers_and_errors_are_those_of_the_call() {
    let (server, upstream) = start().await;
    assert_eq!(
        text(&upstream, "echo", r#"{"text":"é\n\"x"}"#).await,
        "é\n\"x"
    );
    assert_eq!(
        said(&upstream, "none", "{}").await,
        r#"error 200 {"code":-32602,"message":"Unknown tool"}"#
    );
    assert_eq!(server.opened(), 1);
    assert_eq!(server.seen("initialize").len(), 1);
    assert_eq!(server.seen("notifications/initialized").len(), 1);
    assert!(!format!("{:?}", server.seen("initialize")).contains("/tasks"));
}

#[tokio::test]
async fn an_endpoint_may_be_said_in_any_form() {
    for endpoint in [
        "/message?sessionId=ID",
        "message?sessionId=ID",
        "deep/message?session_id=ID",
        "http://ADDRESS/message?sessionId=ID",
        "//ADDRESS/message?sessionId=ID#there",
    ] {
        let (server, upstream) = start().await;
        server.endpoint(&endpoint.replace("ADDRESS", &server.address.to_string()));
        on(&upstream).await;
    }
}

/// Each that may be asked has a line of its own while others are busy.
#[tokio::test]
async fn two_hundred_calls_and_no_answer_crosses() {
    let (server, upstream) = start().await;
    let calls = (0..200).map(|n| begin(&upstream, "hold", &format!(r#"{{"nonce":"n{n}"}}"#)));
    let all = futures_util::future::join_all(calls.map(text_of));
    let release = async {
        server
            .until(|server| server.seen("hold").len() == 200)
            .await;
        assert_eq!(server.opened(), 200);
        let nonces: Vec<String> = (0..200).rev().map(|n| format!("\"n{n}\"")).collect();
        let nonces = format!(r#"{{"nonces":[{}]}}"#, nonces.join(","));
        text(&upstream, "release", &nonces).await
    };
    let (texts, _) = tokio::join!(all, release);
    for (n, text) in texts.iter().enumerate() {
        assert_eq!(*text, format!("n{n}"));
    }
    // A line whose call is over is taken again.
    let opened = server.opened();
    on(&upstream).await;
    assert_eq!(server.opened(), opened);
}

#[tokio::test]
async fn at_the_limit_lines_are_shared() {
    let server = SseServer::start().await;
    let mut few = of(&server);
    few.sessions_max = 3;
    let upstream = run(&few);
    let calls = (0..200).map(|n| begin(&upstream, "hold", &format!(r#"{{"nonce":"n{n}"}}"#)));
    let all = futures_util::future::join_all(calls.map(text_of));
    let release = async {
        server
            .until(|server| server.seen("hold").len() == 200)
            .await;
        let nonces: Vec<String> = (0..200).map(|n| format!("\"n{n}\"")).collect();
        let nonces = format!(r#"{{"nonces":[{}]}}"#, nonces.join(","));
        text(&upstream, "release", &nonces).await
    };
    let (texts, _) = tokio::join!(all, release);
    assert!(
        texts
            .iter()
            .enumerate()
            .all(|(n, text)| *text == format!("n{n}"))
    );
    assert_eq!(server.opened(), 3);
}

#[tokio::test]
async fn all_calls_of_a_caller_share_a_line_where_that_is_wanted() {
    let server = SseServer::start().await;
    let mut shared = of(&server);
    shared.session = SessionMode::Caller;
    let upstream = run(&shared);
    let held = held(&server, &upstream, "a").await;
    assert_eq!(text(&upstream, "ask", "{}").await, "refused -32603");
    release(&upstream, "a").await;
    assert_eq!(text_of(held).await, "a");
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn progress_is_that_of_the_call() {
    let (_server, upstream) = start().await;
    let mut exchange = begin(&upstream, "progress", "{}");
    for step in [1, 3] {
        let Event::Progress(params) = next(&mut exchange).await else {
            panic!("no progress")
        };
        assert!(params.get().contains(&format!("\"progress\":{step}")));
    }
    assert!(matches!(next(&mut exchange).await, Event::Result(_)));
    assert!(exchange.events.next().await.is_none());
}

/// Also while another call runs, which could have asked.
#[tokio::test]
async fn a_question_is_that_of_its_call() {
    let (server, upstream) = start().await;
    let held = held(&server, &upstream, "a").await;
    let mut exchange = begin(&upstream, "ask", "{}");
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    assert_eq!(&*question.method, "elicitation/create");
    let answer = Answer::Result(r#"{"action":"accept","content":{"name":"Ada"}}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(text_of(exchange).await, "Ada");
    release(&upstream, "a").await;
    assert_eq!(text_of(held).await, "a");
}

#[tokio::test]
async fn what_the_client_cannot_answer_is_refused_and_a_ping_answered() {
    let (_server, upstream) = start().await;
    for (method, answer) in [
        ("sampling/createMessage", "refused -32601"),
        ("roots/list", "refused -32601"),
        ("ping", "{}"),
    ] {
        let arguments = format!(r#"{{"method":"{method}"}}"#);
        assert_eq!(text(&upstream, "ask", &arguments).await, answer, "{method}");
    }
}

/// After its call, also where the server acknowledges that with its answer only.
#[tokio::test]
async fn a_cancel_is_told() {
    for late in [false, true] {
        let (server, upstream) = start().await;
        if late {
            server.refuse("tools/call", Refusal::Late);
        }
        let exchange = held(&server, &upstream, "a").await;
        exchange.control.cancel().await;
        drop(exchange);
        server
            .until(|server| !server.seen("notifications/cancelled").is_empty())
            .await;
        let cancelled = server.seen("notifications/cancelled");
        assert_eq!(
            cancelled[0]["params"]["requestId"],
            server.seen("hold")[0]["id"]
        );
        // The call may go on and ask, because no other call uses its line.
        on(&upstream).await;
        assert_eq!(server.opened(), 2);
    }
}

#[tokio::test]
async fn callers_and_capabilities_have_lines_of_their_own() {
    let (server, upstream) = start().await;
    on(&upstream).await;
    let mut other = call_with("line", "{}");
    other.caller = [2; 16];
    assert_eq!(text_of(upstream.begin(LEGACY, other)).await, "2");
    let mut mute = call_with("line", "{}");
    mute.capabilities = "{}".into();
    assert_eq!(text_of(upstream.begin(LEGACY, mute)).await, "3");
    assert_eq!(text(&upstream, "line", "{}").await, "1");
    assert_eq!(server.opened(), 3);
}

#[tokio::test]
async fn credentials_go_with_every_message() {
    let (server, upstream) = start().await;
    server.wants("Bearer mine");
    let mine = || UpstreamRequest {
        credentials: Some(HeaderValue::from_static("Bearer mine").into()),
        ..call_with("line", "{}")
    };
    assert_eq!(text_of(upstream.begin(LEGACY, mine())).await, "1");
    let came = server.credentials();
    assert_eq!(came.len(), 3, "a handshake is two messages");
    assert!(came.iter().flatten().all(|it| it == "Bearer mine") && !came.contains(&None));
    // Of a refusal the challenge is the client's.
    let mut stranger = call_with("line", "{}");
    stranger.caller = [2; 16];
    let mut exchange = upstream.begin(LEGACY, stranger);
    let Event::Error(error) = next(&mut exchange).await else {
        panic!("no error")
    };
    assert_eq!(error.status, 401);
    assert_eq!(error.www_authenticate.unwrap(), "Bearer realm=\"sse\"");
    assert!(matches!(
        upstream.look().await,
        Err(DiscoverError::Unauthorized(_))
    ));
}

#[tokio::test]
async fn the_server_is_known() {
    let (server, upstream) = start().await;
    assert_eq!(upstream.known_era(), Some(LEGACY));
    assert!(!upstream.speaks_http() && upstream.has_address());
    let known = upstream.discover([1; 16], None, "{}").await.unwrap();
    assert!(
        known
            .server_info
            .as_ref()
            .unwrap()
            .get()
            .contains("sse-fixture")
    );
    assert!(known.instructions.is_some());
    let tools = upstream.tools([1; 16], None, "{}".into()).await.unwrap();
    assert!(tools.get("echo").is_some());
    assert_eq!(server.opened(), 1);
}

#[tokio::test]
async fn changes_are_heard_until_the_stream_ends() {
    let (server, upstream) = start().await;
    let mut listening: Listening =
        upstream.listen([1; 16], None, r#"{"elicitation":{}}"#.into(), FILTER.into());
    let first = timeout(Duration::from_secs(20), listening.next()).await;
    let Ok(Some(ListenEvent::Acknowledged(honoured))) = first else {
        panic!("{first:?}")
    };
    assert_eq!(honoured, r#"{"toolsListChanged":true}"#);
    text(&upstream, "changed", "{}").await;
    let heard = timeout(Duration::from_secs(20), listening.next()).await;
    assert!(matches!(
        heard,
        Ok(Some(ListenEvent::Notification { method, .. })) if method == "notifications/tools/list_changed"
    ));
    server.cut();
    let ended = timeout(Duration::from_secs(20), listening.next()).await;
    assert!(matches!(ended, Ok(Some(ListenEvent::Ended))), "{ended:?}");
}

#[tokio::test]
async fn its_streams_end_with_us() {
    let (server, upstream) = start().await;
    on(&upstream).await;
    assert_eq!(server.open(), 1);
    upstream.stop().await;
    server.until(|server| server.open() == 0).await;
    assert_eq!(
        said(&upstream, "echo", "{}").await,
        "upstream_unreachable none"
    );
}
