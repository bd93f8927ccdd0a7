//! Calls of ours on a legacy client's own session, and the stream that both share.

use std::sync::Arc;

use hyper::http::request::Parts;
use hyper::{HeaderMap, Method};
use raincheck::mcp::sse::SseEvent;
use raincheck::upstream::client_session::{ClientSession, ServerStreamReader, Unheard};

use super::*;

const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"m"}}"#;

fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("mcp-session-id", "client-1"),
        ("mcp-protocol-version", "2025-11-25"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
}

pub(super) fn borrowed(upstream: &Upstream) -> ClientSession {
    upstream.client_session(&headers(), [1; 16]).unwrap()
}

pub(super) fn on(session: &ClientSession, tool: &str) -> UpstreamRequest {
    UpstreamRequest {
        pin: Some(session.pin()),
        capabilities: "{}".into(),
        ..call(tool)
    }
}

/// The client's own GET.
fn get(last_event_id: Option<&str>) -> Parts {
    let mut request = Request::builder().method(Method::GET).uri("/mcp");
    *request.headers_mut().unwrap() = headers();
    request = request.header("x-of-the-client", "1");
    if let Some(id) = last_event_id {
        request = request.header("last-event-id", id);
    }
    request.body(()).unwrap().into_parts().0
}

async fn hear(session: &ClientSession) -> ServerStreamReader {
    session.hear(get(None)).await.expect("a stream")
}

async fn event(news: &mut ServerStreamReader) -> SseEvent {
    let event = timeout(Duration::from_secs(10), news.next()).await;
    event.expect("in time").expect("an event")
}

/// A call that says nothing on its own stream.
fn silent() -> Reply {
    Reply::sse_open(": nothing\n\n")
}

#[tokio::test]
async fn calls_go_out_on_the_client_s_session_under_strings_of_ours() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut logging = on(&session, "t");
    logging.log_level = Some("info".into());
    let both = futures_util::future::join(
        outcome_of(upstream.begin(Era::Legacy, logging)),
        outcome_of(upstream.begin(Era::Legacy, on(&session, "t"))),
    );
    let (one, other) = both.await;
    assert_eq!(
        (one.as_str(), other.as_str()),
        ("result {\"content\":[]}", "result {\"content\":[]}")
    );
    let seen = server.last("tools/call");
    assert_eq!(seen.header("mcp-session-id"), "client-1");
    assert_eq!(seen.header("mcp-protocol-version"), "2025-11-25");
    assert!(seen.id().starts_with("\"raincheck/"), "{}", seen.id());
    let token = format!(r#""progressToken":{}"#, seen.id());
    assert!(seen.body.contains(&token), "{}", seen.body);
    assert!(server.ids_are_unique());
    assert_eq!(server.count("initialize"), 0);
    assert_eq!(server.count("logging/setLevel"), 0);
    drop((session, upstream));
    // A stream of ours ends with the last call, and the session is not ours to end.
    server.until(|s| s.hung_up() == s.count("GET")).await;
    assert_eq!(server.count("DELETE"), 0);
}

#[tokio::test]
async fn a_server_without_sessions_has_calls_of_ours_as_well() {
    let server = Server::start(Reply::result(OK)).await;
    let upstream = upstream(&server);
    let mut headers = headers();
    headers.remove("mcp-session-id");
    let session = upstream.client_session(&headers, [1; 16]).unwrap();
    let outcome = outcome_of(upstream.begin(Era::Legacy, on(&session, "t"))).await;
    assert!(outcome.starts_with("result"), "{outcome}");
    assert!(!server.last("tools/call").has("mcp-session-id"));
    assert_eq!(server.count("GET") + server.count("initialize"), 0);
}

#[tokio::test]
async fn a_lost_session_ends_the_call_and_no_other_is_begun() {
    for reply in [
        Reply::json(404, ""),
        Reply::json(400, "Invalid session ID"),
        Reply::error(404, r#"{"code":-32600,"message":"Session not found"}"#),
        Reply::error(400, r#"{"code":-32000,"message":"No valid session ID"}"#),
    ] {
        let server = Server::start(reply).await;
        let upstream = upstream(&server);
        let session = borrowed(&upstream);
        for _ in 0..2 {
            let exchange = upstream.begin(Era::Legacy, on(&session, "t"));
            assert_eq!(outcome_of(exchange).await, "upstream_reset none");
        }
        assert_eq!(server.calls(), 2);
        assert_eq!(server.count("initialize"), 0);
    }
}

#[tokio::test]
async fn a_question_on_the_call_s_own_stream_is_the_call_s() {
    let server = Server::start(Reply::asks(QUESTION)).await;
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, on(&borrowed(&upstream), "t"));
    let Event::Question(question) = next(&mut exchange).await else {
        panic!("no question")
    };
    let answer = Answer::Result(r#"{"action":"decline"}"#.into());
    exchange.control.answer(&question.id, answer).await.unwrap();
    assert_eq!(outcome_of(exchange).await, r#"result {"asked":true}"#);
    assert_eq!(server.last("answer").header("mcp-session-id"), "client-1");
}

#[tokio::test]
async fn a_cancel_names_our_id_on_the_client_s_session() {
    let progress =
        r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#;
    let server = Server::start(Reply::events(&[progress]).unfinished()).await;
    let upstream = upstream(&server);
    let mut exchange = upstream.begin(Era::Legacy, on(&borrowed(&upstream), "t"));
    assert!(matches!(next(&mut exchange).await, Event::Progress(_)));
    exchange.control.cancel().await;
    let seen = server.last("notifications/cancelled");
    let id = server.last("tools/call").id();
    assert!(
        seen.body.contains(&format!(r#""requestId":{id}"#)),
        "{}",
        seen.body
    );
    assert_eq!(seen.header("mcp-session-id"), "client-1");
}

#[tokio::test]
async fn the_client_s_stream_is_heard_by_both() {
    let server = Server::start(silent()).await;
    // As servers write; what is ours comes in between.
    let log = r#"{"method":"notifications/message","params":{"level":"info","data":1}}"#;
    let foreign =
        r#"{"method":"notifications/progress","params":{"progressToken":7,"progress":2}}"#;
    let ours = r#"{"method":"notifications/progress","params":{"progressToken":ID,"progress":1}}"#;
    let body = format!(
        "event: message\nid: 1\ndata: {log}\n\nid: 2\ndata: {ours}\n\nretry: 50\ndata: {QUESTION}\n\n\
         data: {foreign}\n\ndata: {{\"id\":ID,\"result\":{{\"there\":1}}}}\n\nevent: x\nid: 3\ndata: \n\n"
    );
    server.on_get(vec![
        Reply::sse_open(&body)
            .header("x-of-the-server", "1")
            .on_call(),
    ]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut news = hear(&session).await;
    assert_eq!(news.head.headers["x-of-the-server"], "1");
    assert_eq!(server.last("GET").header("x-of-the-client"), "1");
    let mut exchange = upstream.begin(Era::Legacy, on(&session, "t"));
    assert!(matches!(next(&mut exchange).await, Event::Progress(_)));
    assert_eq!(outcome_of(exchange).await, r#"result {"there":1}"#);
    let expected = [
        (Some("message"), Some("1"), None, log),
        (None, None, Some(50), QUESTION),
        (None, None, None, foreign),
        (Some("x"), Some("3"), None, ""),
    ];
    for (name, id, retry, data) in expected {
        let said = event(&mut news).await;
        let seen = (
            said.event.as_deref(),
            said.id.as_deref(),
            said.retry,
            &*said.data,
        );
        assert_eq!(seen, (name, id, retry, data));
        assert!(said.has_data);
    }
    assert_eq!(server.count("GET"), 1);
    drop(session);
    drop(news);
    // No client needs the stream any more, and the server sees that.
    server.until(|s| s.hung_up() == 2).await;
}

#[tokio::test]
async fn a_stream_that_a_call_opened_is_the_client_s_when_it_comes() {
    let server = Server::start(silent()).await;
    server.on_get(vec![
        Reply::sse_open(&format!("id: 1\ndata: {QUESTION}\n\nid: 2\ndata: {{}}\n\n")).on_call(),
    ]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut exchange = upstream.begin(Era::Legacy, on(&session, "t"));
    // Sent on the first poll; its stream is silent.
    let quiet = timeout(Duration::from_secs(10), exchange.events.next());
    tokio::select! {
        _ = quiet => panic!("it says nothing"),
        () = server.until(|s| s.calls() == 1) => {}
    }
    let mut news = hear(&session).await;
    assert_eq!(event(&mut news).await.data, QUESTION);
    assert_eq!(event(&mut news).await.data, "{}");
    assert_eq!(server.count("GET"), 1);
    // Cut, it comes back to where it was: the server is not asked, and knows of nothing.
    drop(news);
    let mut news = session.hear(get(Some("1"))).await.expect("a stream");
    assert_eq!(event(&mut news).await.data, "{}");
    assert_eq!(server.count("GET") + server.count("resume"), 1);
    // What the server alone knows of is for the server.
    let rest = session.hear(get(Some("other-7"))).await.expect("a stream");
    assert_eq!(server.last("resume").header("last-event-id"), "other-7");
    drop(rest);
    drop(news);
    // An id of ours means nothing to it.
    drop(
        session
            .hear(get(Some("raincheck/1")))
            .await
            .expect("a stream"),
    );
    assert_eq!(server.count("resume"), 1);
}

#[tokio::test]
async fn a_client_hears_the_server_s_refusal_and_calls_go_on_without() {
    for status in [405, 409, 404] {
        let server = Server::start(Reply::result(OK)).await;
        server.on_method("GET", vec![Reply::json(status, "{\"no\":1}")]);
        let upstream = upstream(&server);
        let session = borrowed(&upstream);
        let outcome = outcome_of(upstream.begin(Era::Legacy, on(&session, "t"))).await;
        assert!(outcome.starts_with("result"), "{outcome}");
        let Err(Unheard::Refused(refused)) = session.hear(get(None)).await else {
            panic!("a stream")
        };
        assert_eq!(refused.status(), status);
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"{\"no\":1}");
    }
}

#[tokio::test]
async fn nothing_is_lost_for_a_client_that_does_not_read() {
    let server = Server::start(silent()).await;
    let events = (0..500)
        .map(|n| format!("id: {n}\ndata: {{\"method\":\"n\",\"params\":{{\"n\":{n}}}}}\n\n"));
    server.on_get(vec![Reply::sse(&events.collect::<String>())]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut news = hear(&session).await;
    for n in 0..500 {
        let said = event(&mut news).await;
        assert_eq!(said.id, Some(n.to_string()));
    }
    assert!(news.next().await.is_none(), "the server ended it");
}

#[tokio::test]
async fn the_end_of_the_session_is_the_end_of_its_calls() {
    let server = Server::start(silent()).await;
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut news = hear(&session).await;
    let exchange = upstream.begin(Era::Legacy, on(&session, "t"));
    let ended = async {
        server.until(|s| s.calls() == 1).await;
        session.end();
    };
    let (outcome, ()) = futures_util::future::join(outcome_of(exchange), ended).await;
    assert_eq!(outcome, "upstream_reset unknown");
    assert!(news.next().await.is_none());
    assert_eq!(server.count("DELETE"), 0, "that is the client's to say");
    // Both streams are closed, and another session of that name knows nothing of this one.
    server.until(|s| s.hung_up() == 2).await;
    let again = borrowed(&upstream);
    let outcome = outcome_of(upstream.begin(Era::Legacy, on(&session, "t"))).await;
    assert_eq!(outcome, "upstream_reset unknown");
    server.always(Reply::result(OK));
    let outcome = outcome_of(upstream.begin(Era::Legacy, on(&again, "t"))).await;
    assert!(outcome.starts_with("result"), "{outcome}");
}

#[tokio::test]
async fn another_process_carries_the_call_on_there() {
    let server = Server::start(Reply::sse("id: 7\nretry: 10\ndata: \n\n").unfinished()).await;
    let first = upstream(&server);
    let mut exchange = first.begin(Era::Legacy, on(&borrowed(&first), "t"));
    assert!(matches!(next(&mut exchange).await, Event::Resumable(_)));
    let point = exchange.control.resume_point().unwrap();
    exchange.control.leave();
    drop((exchange, first));
    server.on_resume(vec![Reply::events(&[
        r#"{"id":ID,"result":{"resumed":true}}"#,
    ])]);
    let second = upstream(&server);
    let adopted = second.adopt([1; 16], &point, Forwarded::default()).unwrap();
    assert_eq!(outcome_of(adopted).await, r#"result {"resumed":true}"#);
    assert_eq!(server.last("resume").header("mcp-session-id"), "client-1");
    drop(second);
    assert_eq!(server.count("DELETE") + server.count("initialize"), 0);
}

#[tokio::test]
async fn one_session_is_one_for_its_caller_and_nobody_else_s() {
    let server = Server::start(silent()).await;
    let upstream = Arc::new(upstream(&server));
    let mine = borrowed(&upstream);
    let news = hear(&mine).await;
    let other = upstream.client_session(&headers(), [2; 16]).unwrap();
    other.end();
    let mine_again = borrowed(&upstream);
    // Still open: a second stream is for the server to allow.
    server.on_get(vec![Reply::json(409, "")]);
    assert!(matches!(
        mine_again.hear(get(None)).await,
        Err(Unheard::Refused(_))
    ));
    drop(news);
}

#[tokio::test]
async fn what_waits_for_the_client_outlasts_the_call() {
    let server = Server::start(silent()).await;
    let said = format!("data: {QUESTION}\n\ndata: {{\"id\":ID,\"result\":{{}}}}\n\n");
    server.on_get(vec![Reply::sse_open(&said).on_call()]);
    let upstream = upstream(&server);
    let exchange = upstream.begin(Era::Legacy, on(&borrowed(&upstream), "t"));
    assert_eq!(outcome_of(exchange).await, "result {}");
    let mut news = hear(&borrowed(&upstream)).await;
    assert_eq!(event(&mut news).await.data, QUESTION);
    assert_eq!(server.count("GET"), 1);
}

#[tokio::test]
async fn a_stream_that_only_a_call_needs_is_opened_again_where_it_ended() {
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::sse("id: 5\nretry: 10\ndata: \n\n")]);
    server.on_resume(vec![Reply::events(&[r#"{"id":ID,"result":{"there":2}}"#])]);
    let upstream = upstream(&server);
    let exchange = upstream.begin(Era::Legacy, on(&borrowed(&upstream), "t"));
    assert_eq!(outcome_of(exchange).await, r#"result {"there":2}"#);
    let seen = server.last("resume");
    assert_eq!(seen.header("last-event-id"), "5");
    assert_eq!(seen.header("mcp-session-id"), "client-1");
}

#[tokio::test]
async fn a_ping_is_the_client_s_while_it_reads_and_else_ours() {
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::asks(ping).on_call()]);
    let upstream = upstream(&server);
    let exchange = upstream.begin(Era::Legacy, on(&borrowed(&upstream), "t"));
    assert_eq!(outcome_of(exchange).await, r#"result {"asked":true}"#);
    let seen = server.last("answer");
    assert!(
        seen.body.contains(r#""id":"p","result":{}"#),
        "{}",
        seen.body
    );
    assert_eq!(seen.header("mcp-session-id"), "client-1");

    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::events(&[ping])]);
    let mut news = hear(&borrowed(&super::upstream(&server))).await;
    assert_eq!(event(&mut news).await.data, ping);
    assert_eq!(server.count("answer"), 0);
}

/// Some servers end a session if a ping is not answered, and stall if their stream is not read.
#[tokio::test]
async fn a_stream_without_a_reader_is_read_on() {
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let said = (0..200).map(|n| format!("id: {n}\ndata: {{}}\n\n"));
    let said = said.collect::<String>() + &format!("data: {ping}\n\n");
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::sse_open(&said).on_call()]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut exchange = upstream.begin(Era::Legacy, on(&session, "t"));
    tokio::select! {
        _ = exchange.events.next() => panic!("it says nothing"),
        () = server.until(|s| s.count("answer") == 1) => {}
    }
    // The newest have waited.
    let mut news = hear(&session).await;
    let first = event(&mut news).await.id.unwrap().parse::<u32>().unwrap();
    assert!((100..200).contains(&first), "{first}");
    for number in first + 1..200 {
        assert_eq!(event(&mut news).await.id, Some(number.to_string()));
    }
}

#[tokio::test]
async fn a_client_that_goes_away_lets_the_stream_be_read_on() {
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let said = "data: {}\n\n".repeat(200) + &format!("data: {ping}\n\n");
    let server = Server::start(silent()).await;
    server.on_get(vec![Reply::sse_open(&said)]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut news = hear(&session).await;
    event(&mut news).await;
    drop(news);
    server.until(|s| s.count("answer") == 1).await;
}

#[tokio::test]
async fn the_rest_of_a_cut_post_is_not_the_session_s_stream() {
    let server = Server::start(silent()).await;
    server.on_resume(vec![Reply::sse_open("id: 8\ndata: {}\n\n")]);
    let upstream = upstream(&server);
    let session = borrowed(&upstream);
    let mut rest = session.hear(get(Some("7"))).await.expect("a stream");
    event(&mut rest).await;
    // A call has the session's all the same.
    let mut exchange = upstream.begin(Era::Legacy, on(&session, "t"));
    tokio::select! {
        _ = exchange.events.next() => panic!("it says nothing"),
        () = server.until(|s| s.calls() == 1) => {}
    }
    assert_eq!(server.count("GET"), 1);
    drop((rest, exchange));
    server.until(|s| s.hung_up() == 2).await;
    let news = hear(&session).await;
    assert_eq!(server.count("GET"), 1, "that of the call");
    drop(news);
}
