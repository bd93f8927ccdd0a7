//! What a legacy server says on a session's own stream, and not on that of a call.

use super::*;

const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"m"}}"#;

/// A call that says nothing on its own stream.
fn silent() -> Reply {
    Reply::sse_open(": nothing\n\n")
}

#[tokio::test]
async fn a_question_that_names_no_call_is_the_running_call_s() {
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::asks(QUESTION).on_call()]);
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, call("t"));
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    let answer = Answer::Result(r#"{"action":"decline"}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    // Its answer comes there, too.
    let event = next(&mut exchange).await;
    assert!(matches!(event, Event::Result(r) if r.get().contains("asked")));
    assert!(exchange.events.next().await.is_none());
    assert!(server.last("answer").body.contains("decline"));
    // What is left of the call's own stream was closed, and nothing cancelled.
    server.until(|s| s.hung_up() >= 1).await;
    assert_eq!(server.count("notifications/cancelled"), 0);
}

#[tokio::test]
async fn progress_and_logs_come_there_too() {
    let server = Server::start(silent()).await;
    server.on_get(vec![
        Reply::events(&[
            r#"{"method":"notifications/progress","params":{"progressToken":"x","progress":2}}"#,
            r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#,
            r#"{"method":"notifications/message","params":{"level":"error","data":2}}"#,
            r#"{"id":ID,"error":{"code":-1,"message":"m"}}"#,
        ])
        .on_call(),
    ]);
    let upstream = upstream(&server);
    let mut outgoing = call("t");
    outgoing.log_level = Some("info".into());
    let mut exchange = upstream.begin(Era::Legacy, outgoing);
    let event = next(&mut exchange).await;
    assert!(matches!(event, Event::Progress(p) if p.get().contains("\"progress\":1")));
    assert!(matches!(next(&mut exchange).await, Event::Log(_)));
    assert!(matches!(next(&mut exchange).await, Event::Error(_)));
}

#[tokio::test]
async fn pings_are_answered_and_what_nobody_can_answer_is_refused() {
    for (ask, answer) in [
        ("ping", r#""result":{}"#),
        ("sampling/createMessage", "-32601"),
        ("other/thing", "-32601"),
    ] {
        let server = Server::start(silent()).await;
        let question = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{ask}"}}"#);
        server.on_get(vec![Reply::asks(&question).on_call()]);
        let outcome = outcome(&upstream(&server), Era::Legacy).await;
        assert_eq!(outcome, r#"result {"asked":true}"#);
        let seen = server.last("answer");
        assert!(seen.body.contains(answer), "{}", seen.body);
        assert_eq!(seen.header("mcp-session-id"), "s1");
    }
}

#[tokio::test]
async fn a_question_of_one_of_several_calls_is_refused() {
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::asks(QUESTION).on_call()]);
    let mut settings = settings(server.url());
    settings.session = SessionMode::Caller;
    let upstream = Upstream::new(&settings, TaskTracker::new()).unwrap();
    server.await_calls(2);
    let mut first = upstream.begin(Era::Legacy, call("t"));
    let mut second = upstream.begin(Era::Legacy, call("t"));
    let both = futures_util::future::join(first.events.next(), second.events.next());
    let quiet = timeout(Duration::from_secs(5), both);
    let answered = server.until(|s| s.count("answer") == 1);
    let heard = tokio::select! { _ = quiet => true, () = answered => false };
    assert!(!heard, "neither call was asked");
    assert!(server.last("answer").body.contains("-32603"));
}

#[tokio::test]
async fn it_is_opened_once_a_session_and_closed_with_it() {
    let server = Server::start(Reply::result(OK)).await;
    let up = upstream(&server);
    for _ in 0..3 {
        outcome(&up, Era::Legacy).await;
    }
    assert_eq!(server.count("GET"), 1);
    assert_eq!(server.last("GET").header("mcp-session-id"), "s1");
    drop(up);
    server.until(|s| s.hung_up() == 1).await;

    // Without such a stream all goes on as before, and it is not asked for again.
    let server = Server::start(Reply::result(OK)).await;
    server.on_get(vec![Reply::json(405, ""), Reply::json(405, "")]);
    let up = upstream(&server);
    for _ in 0..3 {
        assert!(outcome(&up, Era::Legacy).await.starts_with("result"));
    }
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_where_it_ended() {
    let server = Server::start(silent()).await;
    server.on_get(vec![
        Reply::json(409, ""),
        Reply::sse("id: 7\nretry: 10\ndata: \n\n"),
    ]);
    server.on_resume(vec![Reply::asks(
        r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#,
    )]);
    let outcome = outcome(&upstream(&server), Era::Legacy).await;
    assert_eq!(outcome, r#"result {"asked":true}"#);
    assert_eq!(server.count("GET"), 2);
    assert_eq!(server.last("resume").header("last-event-id"), "7");
}

#[tokio::test]
async fn a_resumed_stream_that_is_silent_is_asked_for_again() {
    let server = Server::start(Reply::sse("id: 7\nretry: 50\ndata: \n\n")).await;
    server.on_resume(vec![
        silent(),
        Reply::events(&[r#"{"id":ID,"result":{"resumed":true}}"#]),
    ]);
    let outcome = outcome(&upstream(&server), Era::Legacy).await;
    assert_eq!(outcome, r#"result {"resumed":true}"#);
    assert_eq!(server.calls(), 1);
    assert_eq!(server.count("resume"), 2);
}

#[tokio::test]
async fn an_answer_that_a_server_without_sessions_loses_ends_its_call() {
    for (patience, reply, expected) in [
        (
            Some(Duration::from_millis(100)),
            Reply::events(&[QUESTION]).unfinished(),
            "deadline unknown",
        ),
        // A server that goes on has heard it.
        (
            Some(Duration::from_secs(5)),
            Reply::asks(QUESTION),
            r#"result {"asked":true}"#,
        ),
        (None, Reply::asks(QUESTION), r#"result {"asked":true}"#),
    ] {
        let server = Server::start(reply).await;
        server.without_sessions();
        let mut outgoing = call("t");
        outgoing.answer_patience = patience;
        let mut exchange = upstream(&server).begin(Era::Legacy, outgoing);
        let Event::Question(question) = next(&mut exchange).await else {
            panic!("no question")
        };
        let answer = Answer::Result(r#"{"action":"decline"}"#.into());
        exchange.control.answer(&question.id, answer).await.unwrap();
        assert_eq!(outcome_of(exchange).await, expected);
    }
}
