//! A server that becomes another one behind its address: upgraded, taken back, or a gateway's for a moment.

use super::*;

const NO_METHOD: &str = r#"{"code":-32601,"message":"Method not found"}"#;
const NO_VERSION: &str = r#"{"code":-32000,"message":"Bad Request: Unsupported protocol version"}"#;
const QUESTION: &str = r#"{"id":7,"method":"elicitation/create","params":{}}"#;

async fn legacy_server() -> Server {
    let server = Server::start(Reply::result(OK)).await;
    server.on_discover(Reply::error(404, NO_METHOD));
    server
}

#[tokio::test]
async fn a_server_that_was_upgraded_is_spoken_to_in_its_new_era() {
    let server = legacy_server().await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy);
    assert!(outcome(&up, Era::Legacy).await.starts_with("result"));
    server.first(vec![Reply::asks(QUESTION)]);
    let mut under_way = up.begin(Era::Legacy, call("t"));
    let Event::Question(question) = next(&mut under_way).await else {
        panic!("no question");
    };

    server.on_method("server/discover", vec![Reply::result(server::DISCOVERED)]);
    let refusal = r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#;
    server.on_method("initialize", vec![Reply::error(400, refusal)]);
    let refused = outcome(&up, Era::Legacy).await;
    assert!(refused.starts_with("error 400"), "{refused}");
    assert_eq!(up.era(None).await.unwrap(), Era::Modern, "known at once");
    assert_eq!(outcome(&up, Era::Modern).await, format!("result {OK}"));
    assert!(up.refuses_sessions(None).await);

    let answer = Answer::Result(r#"{"action":"accept"}"#.into());
    under_way
        .control
        .answer(&question.id, answer)
        .await
        .unwrap();
    assert_eq!(outcome_of(under_way).await, r#"result {"asked":true}"#);
}

#[tokio::test]
async fn a_server_that_was_taken_back_is_spoken_to_in_its_old_era() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    server.on_discover(Reply::error(400, NO_VERSION));
    server.first(vec![Reply::error(400, NO_VERSION)]);
    let refused = outcome(&up, Era::Modern).await;
    assert!(refused.starts_with("error 400"), "{refused}");
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy, "known at once");
    assert!(outcome(&up, Era::Legacy).await.starts_with("result"));
    server.until(|s| s.count("DELETE") == 1).await;
}

/// Older servers refuse a request without a session as one that cannot be processed.
#[tokio::test]
async fn a_server_that_was_taken_back_may_say_so_with_422() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    let refusal = Reply::json(422, "Unexpected message, expect initialize request");
    server.on_discover(refusal.clone());
    server.first(vec![refusal]);
    assert_eq!(outcome(&up, Era::Modern).await, "upstream_http unknown");
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy, "known at once");
}

/// A gateway says 404 to whatever comes while the server starts.
#[tokio::test]
async fn a_refusal_that_proves_nothing_changes_nothing() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    let methods = ["server/discover", "initialize", "tools/call"];
    for method in methods {
        server.on_method(method, vec![Reply::json(404, "")]);
    }
    for _ in 0..3 {
        assert_eq!(outcome(&up, Era::Modern).await, "upstream_http none");
    }
    assert_eq!(up.known_era(), Some(Era::Modern));
    assert_eq!(server.count("server/discover"), 2, "not at each refusal");
}

/// It takes sessions of legacy clients, too, and is modern all the same.
#[tokio::test]
async fn a_server_in_trouble_is_of_no_other_era() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    let trouble = r#"{"code":-32603,"message":"Internal error"}"#;
    server.on_discover(Reply::error(500, trouble));
    server.first(vec![Reply::error(400, NO_VERSION)]);
    let refused = outcome(&up, Era::Modern).await;
    assert!(refused.starts_with("error 400"), "{refused}");
    assert_eq!(server.count("server/discover"), 2);
    assert_eq!(up.known_era(), Some(Era::Modern));
}

#[tokio::test]
async fn an_era_that_is_configured_stays() {
    let server = legacy_server().await;
    let configured = Settings {
        era: Some(Era::Modern),
        ..settings(server.url())
    };
    let up = Upstream::new(&configured, TaskTracker::new()).unwrap();
    server.always(Reply::error(400, NO_VERSION));
    outcome(&up, Era::Modern).await;
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    assert_eq!(server.count("server/discover"), 0);
}

/// Responses that pass through as bytes are examined, too, but no client waits for the outcome.
#[tokio::test]
async fn refused_bytes_are_a_doubt() {
    let server = legacy_server().await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Legacy);
    server.on_method("server/discover", vec![Reply::result(server::DISCOVERED)]);
    server.on_method("initialize", vec![Reply::error(400, NO_METHOD)]);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    let (parts, body) = Request::post("http://c.example/mcp")
        .body(body.to_owned())
        .unwrap()
        .into_parts();
    let response = up
        .pass(Box::new(parts), RequestBody::json(body))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    server
        .until(|server| server.count("server/discover") == 2)
        .await;
    // Waits for the doubt that is being asked about, and asks no more.
    up.doubt_era(None).await;
    assert_eq!(up.known_era(), Some(Era::Modern));
    assert_eq!(server.count("server/discover"), 2);
}

/// What is asked about beside becomes known in a moment.
async fn until_refusing(up: &Upstream, refuses: bool) {
    let what = format!("sessions are refused: {refuses}");
    let becomes_so = async || up.refuses_sessions(None).await == refuses;
    eventually(Duration::from_secs(5), &what, becomes_so).await;
}

/// What says that a server takes no sessions is believed as long as it is likely.
#[tokio::test]
async fn whether_sessions_are_taken_is_asked_again() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    server.on_method("initialize", vec![Reply::json(404, "")]);
    assert!(up.refuses_sessions(None).await);
    assert!(up.refuses_sessions(None).await);
    assert_eq!(server.count("initialize"), 1);

    // That was a gateway's.
    wait(Duration::from_secs(31)).await;
    let taken = Reply::result(server::INITIALIZED).header("mcp-session-id", "s");
    server.on_method("initialize", vec![taken]);
    until_refusing(&up, false).await;
    assert_eq!(server.last("DELETE").header("mcp-session-id"), "s");
    assert_eq!(server.count("initialize"), 2);

    // The server has words, and is asked by one of those who come after a while.
    wait(Duration::from_mins(11)).await;
    server.on_method("initialize", vec![Reply::error(400, NO_METHOD)]);
    until_refusing(&up, true).await;
    assert_eq!(server.count("initialize"), 3);
}

/// A server that is slow to say anew whether it takes sessions holds up no client.
#[tokio::test]
async fn only_the_first_clients_wait_for_whether_sessions_are_taken() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    server.on_method("initialize", vec![Reply::json(503, "")]);
    let ask = || up.refuses_sessions(None);
    assert_eq!(tokio::join!(ask(), ask(), ask()), (false, false, false));
    assert_eq!(server.count("initialize"), 1, "one asks for all");
    server.on_method("initialize", vec![Reply::error(400, NO_METHOD)]);
    assert!(ask().await);

    wait(Duration::from_mins(11)).await;
    server.on_method("initialize", vec![Reply::hang()]);
    for _ in 0..3 {
        let told = timeout(Duration::from_secs(1), ask()).await;
        assert!(told.expect("at once"));
    }
    server.until(|server| server.count("initialize") == 3).await;
    assert!(timeout(Duration::from_secs(1), ask()).await.unwrap());
    assert_eq!(server.count("initialize"), 3);
}

#[tokio::test]
async fn a_server_that_is_slow_to_refuse_sessions_is_asked_once() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    assert_eq!(up.era(None).await.unwrap(), Era::Modern);
    let slow = Duration::from_secs(20);
    server.on_method("initialize", vec![Reply::error(400, NO_METHOD).after(slow)]);
    tokio::select! {
        _ = up.refuses_sessions(None) => panic!("it is slow"),
        () = server.until(|s| s.count("initialize") == 1) => {}
    }
    wait(slow).await;
    until_refusing(&up, true).await;
    assert_eq!(server.count("initialize"), 1);
}
