//! Calls that a legacy server runs as tasks of its own.

use super::*;

const CREATED: &str = r#"{"task":{"taskId":"t1","status":"working","createdAt":"2026-01-01T00:00:00Z","ttl":null,"pollInterval":10}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"m","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}"#;

fn native_call() -> UpstreamRequest {
    UpstreamRequest {
        native_task: true,
        ..call("t")
    }
}

fn state(status: &str, message: &str) -> Reply {
    Reply::result(&format!(
        r#"{{"taskId":"t1","status":"{status}","statusMessage":"{message}","pollInterval":10}}"#
    ))
}

async fn server(result: Vec<Reply>, states: Vec<Reply>) -> Server {
    let server = Server::start(Reply::result(CREATED)).await;
    server.on_method("tasks/result", result);
    server.on_method("tasks/get", states);
    server.on_method("tasks/cancel", vec![state("cancelled", "")]);
    server
}

fn begin(server: &Server) -> Exchange {
    upstream(server).begin(Era::Legacy, native_call())
}

#[tokio::test]
async fn it_is_created_waited_for_and_fetched_on_one_session() {
    let result = Reply::result(OK).after(Duration::from_millis(600));
    let server = server(vec![result], vec![state("working", "half way")]).await;
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, native_call());
    let event = next(&mut exchange).await;
    assert!(matches!(event, Event::Progress(p) if p.get().contains("half way")));
    assert_eq!(outcome_of(exchange).await, format!("result {OK}"));
    assert!(server.last("tools/call").body.contains(r#""task":{}"#));
    assert!(
        server
            .last("tasks/result")
            .body
            .contains(r#""taskId":"t1""#)
    );
    assert!(server.last("tasks/get").body.contains(r#""taskId":"t1""#));
    for method in ["tools/call", "tasks/result", "tasks/get"] {
        assert_eq!(server.last(method).header("mcp-session-id"), "s1");
    }
    // And the session is free again.
    server.always(Reply::result(OK));
    outcome(&upstream, Era::Legacy).await;
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("DELETE"), 0);
}

#[tokio::test]
async fn its_question_is_answered_where_it_is_asked() {
    let server = server(
        vec![Reply::asks(QUESTION)],
        vec![state("input_required", "")],
    )
    .await;
    let mut exchange = begin(&server);
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    let answer = Answer::Result(r#"{"action":"decline"}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(outcome_of(exchange).await, r#"result {"asked":true}"#);
    assert!(server.last("answer").body.contains("decline"));
}

#[tokio::test]
async fn a_server_that_lets_nobody_wait_is_polled() {
    let not_yet = || Reply::error(200, r#"{"code":-32602,"message":"not ready"}"#);
    let server = server(
        vec![not_yet(), not_yet(), Reply::result(OK)],
        vec![state("working", ""), state("completed", "")],
    )
    .await;
    assert_eq!(outcome_of(begin(&server)).await, format!("result {OK}"));
    assert_eq!(server.count("tasks/result"), 3);
}

#[tokio::test]
async fn its_own_error_is_the_call_s() {
    let error = r#"{"code":-32000,"message":"boom"}"#;
    let server = server(
        vec![Reply::error(200, error)],
        vec![state("failed", "boom")],
    )
    .await;
    let outcome = outcome_of(begin(&server)).await;
    assert_eq!(outcome, format!("error 200 {error}"));
}

#[tokio::test]
async fn a_task_that_the_server_lost_fails_its_call() {
    let unknown = || Reply::error(200, r#"{"code":-32602,"message":"unknown task"}"#);
    let server = server(vec![unknown()], vec![unknown()]).await;
    assert_eq!(outcome_of(begin(&server)).await, "upstream_reset unknown");
    // A stream that broke is asked for again.
    let server = server_that_breaks().await;
    assert_eq!(outcome_of(begin(&server)).await, format!("result {OK}"));
}

async fn server_that_breaks() -> Server {
    server(
        vec![Reply::raw(b""), Reply::result(OK)],
        vec![state("working", "")],
    )
    .await
}

#[tokio::test]
async fn it_is_cancelled_by_its_own_name() {
    let server = server(vec![Reply::hang()], vec![state("working", "")]).await;
    let mut exchange = begin(&server);
    let going = async { while exchange.events.next().await.is_some() {} };
    let asked = server.until(|s| s.count("tasks/get") > 0);
    tokio::select! { () = going => panic!("it ended"), () = asked => {} }
    exchange.control.cancel().await;
    assert!(
        server
            .last("tasks/cancel")
            .body
            .contains(r#""taskId":"t1""#)
    );
    assert_eq!(server.last("tasks/cancel").header("mcp-session-id"), "s1");
    drop(exchange);
    server.until(|s| s.count("DELETE") == 1).await;
}

#[tokio::test]
async fn what_is_answered_at_once_is_the_answer() {
    let server = Server::start(Reply::result(OK)).await;
    assert_eq!(outcome_of(begin(&server)).await, format!("result {OK}"));
    let server = Server::start(Reply::json(500, "")).await;
    assert_eq!(outcome_of(begin(&server)).await, "upstream_http unknown");
}
