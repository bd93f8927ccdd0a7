//! Calls that a legacy server runs as tasks of its own.

use std::sync::Arc;

use hyper::header::HeaderValue;

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
    resumable(&mut exchange).await;
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
    resumable(&mut exchange).await;
    assert_asks(exchange, &server).await;
}

/// Another process can follow the task: the server has made it.
async fn resumable(exchange: &mut Exchange) {
    let event = next(exchange).await;
    assert!(matches!(event, Event::Resumable(_)), "{event:?}");
}

/// The server asks on the request for the result, and gets the answer.
async fn assert_asks(mut exchange: Exchange, server: &Server) {
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    let answer = Answer::Result(r#"{"action":"decline"}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(outcome_of(exchange).await, r#"result {"asked":true}"#);
    assert!(server.last("answer").body.contains("decline"));
}

/// On its session, with the capabilities of its client: what the server asks there is put to the client.
#[tokio::test]
async fn another_process_goes_on_with_it() {
    let asks = vec![Reply::asks(QUESTION)];
    let server = server(asks, vec![state("input_required", "")]).await;
    let mut exchange = begin(&server);
    resumable(&mut exchange).await;
    let point = exchange.control.resume_point().unwrap();
    exchange.control.leave();
    drop(exchange);
    let another = upstream(&server);
    let mut adopted = another
        .adopt([1; 16], &point, Forwarded::default())
        .unwrap();
    adopted.control.hold();
    resumable(&mut adopted).await;
    assert_asks(adopted, &server).await;
    assert_eq!(server.last("tasks/result").header("mcp-session-id"), "s1");
    assert_eq!(server.count("initialize"), 1);
    assert_eq!(server.count("tools/call"), 1);
}

/// A modern server's task needs no session, and the other process shows what the client's request shows.
#[tokio::test]
async fn another_process_goes_on_with_the_task_of_a_modern_server() {
    let created = r#"{"resultType":"task","taskId":"m1","status":"working","pollIntervalMs":10}"#;
    let server = Server::start(Reply::result(created)).await;
    let ended =
        format!(r#"{{"resultType":"complete","taskId":"m1","status":"completed","result":{OK}}}"#);
    server.on_method("tasks/get", vec![Reply::result(&ended)]);
    let upstream = upstream(&server);
    let shown = |token: &'static str| Some(HeaderValue::from_static(token).into());
    let call = Arc::new(call("t").with_credentials(shown("Bearer old")));
    let Event::Result(answer) = next(&mut upstream.begin(Era::Modern, Arc::clone(&call))).await
    else {
        panic!("no task")
    };
    let mut exchange = upstream.follow(&call, &answer).unwrap();
    resumable(&mut exchange).await;
    let point = exchange.control.resume_point().unwrap();
    assert!(!point.contains("old"));
    drop(exchange);
    let from = Forwarded {
        credentials: shown("Bearer new"),
        ..Forwarded::default()
    };
    let mut adopted = super::upstream(&server)
        .adopt([1; 16], &point, from)
        .unwrap();
    resumable(&mut adopted).await;
    assert_eq!(outcome_of(adopted).await, format!("result {OK}"));
    let asked = server.last("tasks/get");
    assert_eq!(asked.header("authorization"), "Bearer new");
    assert_eq!(asked.header("mcp-name"), "m1");
    assert!(asked.body.contains("elicitation"), "{}", asked.body);
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
