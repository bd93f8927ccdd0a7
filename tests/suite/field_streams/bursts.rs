//! Many messages within one call: a connected client gets each, and a slow one slows the server.

use serde_json::json;

use super::{Scripted, answer_json, note};
use crate::redis_server::RedisServer;
use crate::support::client::Client;
use crate::support::session::{NEWEST, Session};
use crate::support::stream::Stream;
use crate::support::{Config, Proxy};

/// Together more than sockets and logs keep.
const MESSAGES: usize = 1500;
const PADDING: usize = 8 << 10;

const NO_GET: &str = "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

async fn burst(config: Config, messages: usize, padding: usize) -> (Scripted, Proxy, Session) {
    let answer = format!("data: {}\n\n", answer_json("done"));
    let notes = (0..messages).map(|number| note(number, padding));
    let server = Scripted::start(notes.chain([answer]).collect(), NO_GET).await;
    let config = config.section("upstream", "transport = \"streamable-http\"");
    let proxy = config.start(&server.url()).await;
    let session = Session::open(Client::of(proxy.address()), NEWEST).await;
    (server, proxy, session)
}

/// The numbers of the messages up to the answer, which must come.
async fn numbers(stream: &mut Stream) -> Vec<usize> {
    let mut numbers = Vec::new();
    loop {
        let event = stream.event().await.expect("the answer has not come");
        if event.message["id"] == 7 {
            assert!(event.message["result"].is_object(), "{event:?}");
            return numbers;
        }
        if let Some(number) = event.message["params"]["data"].as_u64() {
            numbers.push(usize::try_from(number).unwrap());
        }
    }
}

async fn all_of_it_comes(config: Config) {
    let (server, _proxy, session) = burst(config, MESSAGES, PADDING).await;
    let mut stream = session.calling(7, "t", json!({})).stream().await;
    // The client reads nothing until the server is read no more.
    server.until_quiet().await;
    let numbers = numbers(&mut stream).await;
    assert!(
        numbers.iter().copied().eq(0..MESSAGES),
        "{} came",
        numbers.len()
    );
}

#[tokio::test]
async fn a_slow_client_gets_all_of_it() {
    all_of_it_comes(Config::never()).await;
}

#[tokio::test]
async fn a_slow_client_gets_all_of_it_over_a_file() {
    all_of_it_comes(Config::never().embedded()).await;
}

#[tokio::test]
async fn a_slow_client_gets_all_of_it_over_redis() {
    let redis = RedisServer::start();
    all_of_it_comes(Config::never().redis(&redis.url())).await;
}

/// It comes back to what is kept.
#[tokio::test]
async fn a_client_that_is_gone_holds_up_no_call() {
    let (_server, _proxy, session) = burst(Config::never(), MESSAGES, 1).await;
    let mut stream = session.calling(7, "t", json!({})).stream().await;
    let first = stream.event().await.unwrap().id.unwrap();
    drop(stream);
    let call = first.strip_suffix('0').unwrap();
    let behind = |number: usize| {
        let back = session.http(hyper::Method::GET);
        back.header("last-event-id", &format!("{call}{number}"))
    };
    // Nothing comes behind the answer: this stream ends with the call.
    behind(MESSAGES + 1).send().await;
    let numbers = numbers(&mut behind(0).stream().await).await;
    assert!((1..MESSAGES).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(numbers.last(), Some(&(MESSAGES - 1)));
}

/// The older one may be dead.
#[tokio::test]
async fn an_older_stream_holds_up_no_newer_one() {
    let (server, _proxy, session) = burst(Config::never(), MESSAGES, PADDING).await;
    let mut older = session.calling(7, "t", json!({})).stream().await;
    let first = older.event().await.unwrap().id.unwrap();
    server.until_quiet().await;
    let back = session
        .http(hyper::Method::GET)
        .header("last-event-id", &first);
    let numbers = numbers(&mut back.stream().await).await;
    let newest = MESSAGES - 200..MESSAGES;
    assert!(numbers.ends_with(&newest.collect::<Vec<_>>()));
}

/// A program writes as fast as it can.
#[tokio::test]
async fn all_that_a_program_writes_at_once_comes() {
    let proxy = Config::never().run("legacy").await;
    let session = Session::open(Client::of(proxy.address()), NEWEST).await;
    let arguments = json!({"bytes": 200, "n": 3000});
    let mut stream = session.calling(7, "burst", arguments).stream().await;
    let mut expected = 0;
    loop {
        let message = stream.event().await.unwrap().message;
        if message["id"] == 7 {
            break;
        }
        if let Some(number) = message["params"]["data"][0].as_u64() {
            assert_eq!(number, expected);
            expected += 1;
        }
    }
    assert_eq!(expected, 3000);
}
