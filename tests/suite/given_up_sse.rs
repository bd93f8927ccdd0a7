//! A client that gives up in front of a server of the old transport (HTTP+SSE, 2024-11-05): the same call again collects
//! the first one.

use serde_json::{Value, json};

use crate::given_up::{TIMED_OUT, cancel, text};
use crate::held::{Session, primed, rest};
use crate::sse_server::SseServer;
use crate::support::client::{Client, Request};
use crate::support::stream::Stream;
use crate::support::{Config, Proxy};

async fn rig() -> (SseServer, Proxy, Session) {
    let server = SseServer::start().await;
    // It helps the tests, and is no call of theirs.
    let config = Config::auto("20s").tool("release", "mode = \"never\"");
    let proxy = config.start(&server.url()).await;
    let session = Session::open(Client::of(proxy.address())).await;
    (server, proxy, session)
}

fn hold(session: &Session, id: u64) -> Request {
    let call = session.calling("hold", json!({"nonce": "a"}));
    call.edit(|message| message["id"] = json!(id))
}

/// The client makes the call, and has a stream for it.
async fn tries(session: &Session, id: u64) -> Stream {
    let mut stream = hold(session, id).stream().await;
    primed(&mut stream).await;
    stream
}

async fn gives_up(session: &Session, id: u64, reason: &str) -> Stream {
    let stream = tries(session, id).await;
    let cancelled = session.post(&cancel(id, reason)).send().await;
    assert_eq!(cancelled.status, 202);
    stream
}

async fn release(session: &Session) {
    let call = session.calling("release", json!({"nonces": ["a"]}));
    assert_eq!(call.send().await.status, 200);
}

fn cancels(server: &SseServer) -> Vec<Value> {
    server.seen("notifications/cancelled")
}

#[tokio::test]
async fn the_next_tries_of_a_session_get_the_result() {
    let (server, _proxy, session) = rig().await;
    let mut first = gives_up(&session, 10, TIMED_OUT).await;
    assert!(rest(&mut first).await.is_empty());
    // This one collects the call, and gives it up again.
    gives_up(&session, 11, TIMED_OUT).await;
    let mut third = tries(&session, 12).await;
    release(&session).await;
    assert_eq!(text(&mut third).await, (json!(12), "a".into()));
    assert_eq!(server.seen("hold").len(), 1);
    assert!(cancels(&server).is_empty(), "{:?}", cancels(&server));
}

#[tokio::test]
async fn a_cancel_for_another_reason_reaches_the_server() {
    let (server, _proxy, session) = rig().await;
    let _first = gives_up(&session, 10, "the user pressed escape").await;
    server.until(|server| cancels(server).len() == 1).await;
    assert_eq!(cancels(&server)[0]["params"]["requestId"], 10);
    // So it does after a try that was given up, and then nothing is left to collect.
    gives_up(&session, 11, TIMED_OUT).await;
    let _second = gives_up(&session, 12, "the user pressed escape").await;
    server.until(|server| cancels(server).len() == 2).await;
    let mut third = tries(&session, 13).await;
    release(&session).await;
    assert_eq!(text(&mut third).await, (json!(13), "a".into()));
    assert_eq!(server.seen("hold").len(), 3);
}

#[tokio::test]
async fn a_call_that_is_not_tried_again_is_cancelled_at_the_end_of_the_window() {
    let server = SseServer::start().await;
    let config = Config::auto("20s").terms("give_up_window = \"300ms\"");
    let proxy = config.start(&server.url()).await;
    let session = Session::open(Client::of(proxy.address())).await;
    gives_up(&session, 10, TIMED_OUT).await;
    server.until(|server| cancels(server).len() == 1).await;
}

/// Two sessions have two streams at the server, and two states.
#[tokio::test]
async fn another_session_does_not_collect_it() {
    let (server, proxy, mine) = rig().await;
    let theirs = Session::open(Client::of(proxy.address())).await;
    gives_up(&mine, 10, TIMED_OUT).await;
    let mut other = tries(&theirs, 11).await;
    assert_eq!(server.seen("hold").len(), 2);
    release(&theirs).await;
    assert_eq!(text(&mut other).await, (json!(11), "a".into()));
}
