//! Events of other names: keepalives and whatever else clients ignore.

use std::fmt::Write as _;

use serde_json::json;

use super::{Scripted, answer_json, note};
use crate::support::client::Client;
use crate::support::session::{NEWEST, Session};
use crate::support::{Config, Proxy};

const NO_GET: &str = "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Clients take none of these for a message.
fn others() -> Vec<String> {
    let answer = answer_json("not this");
    [
        "event: keepalive\ndata: {}\n\n",
        "event: ping\ndata: 2025-07-15 10:00:00+00:00\n\n",
        "event: ping\ndata: \n\n",
        "event: endpoint\ndata: /mcp\n\n",
        "event: heartbeat\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n",
        "data: {}\n\n",
        "data: still here\n\n",
        &format!("event: answer\ndata: {answer}\n\n"),
        &format!("event: Message\ndata: {answer}\n\n"),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn answer() -> String {
    format!("event: message\ndata: {}\n\n", answer_json("done"))
}

async fn through(call: Vec<String>) -> (Scripted, Proxy) {
    let server = Scripted::start(call, NO_GET).await;
    let config = Config::never().section("upstream", "transport = \"streamable-http\"");
    let proxy = config.start(&server.url()).await;
    (server, proxy)
}

/// The events with the ids that messages get.
fn numbered(events: &[String], call: &str) -> String {
    let (mut text, mut number) = (String::new(), 0);
    for event in events {
        match event.strip_prefix("event: message\n") {
            Some(rest) => {
                number += 1;
                write!(text, "event: message\nid: {call}/{number}\n{rest}").unwrap();
            }
            None => text += event,
        }
    }
    text
}

#[tokio::test]
async fn they_keep_their_name_and_place_and_get_no_id() {
    let (note, others) = (|number| vec![note(number, 1)], others());
    let events = [
        others.clone(),
        note(1),
        others.clone(),
        note(2),
        others,
        vec![answer()],
    ];
    let events = events.concat();
    let (_server, proxy) = through(events.clone()).await;
    for version in [NEWEST, "2025-06-18"] {
        let session = Session::open(Client::of(proxy.address()), version).await;
        let body = session.calling(7, "t", json!({})).send().await.body;
        let id = body.split("id: ").nth(1).unwrap().lines().next().unwrap();
        let (call, _) = id.rsplit_once('/').unwrap();
        assert!(call.starts_with("raincheck/"), "{body}");
        let told = numbered(&events, call);
        assert!(body.ends_with(&told), "{body}");
        // A client that comes back gets the same.
        let back = session.http(hyper::Method::GET);
        let again = back
            .header("last-event-id", &format!("{call}/0"))
            .send()
            .await
            .body;
        assert!(again.ends_with(&told), "{again}");
        let back = session.http(hyper::Method::GET);
        let rest = back
            .header("last-event-id", &format!("{call}/2"))
            .send()
            .await
            .body;
        assert!(
            told.ends_with(rest.split("data: \n\n").last().unwrap()),
            "{rest}"
        );
        assert_eq!(rest.matches("event: keepalive").count(), 1, "{rest}");
    }
}

#[tokio::test]
async fn an_answer_behind_them_passes_byte_for_byte() {
    let events = [others(), vec![answer()]].concat();
    let (_server, proxy) = through(events[3..].to_vec()).await;
    let session = Session::open(Client::of(proxy.address()), NEWEST).await;
    let list = session
        .request(7, "tools/list", json!({}))
        .send()
        .await
        .body;
    assert!(
        list.contains(&events[3..events.len() - 1].concat()),
        "{list}"
    );
    let only_named: Vec<String> = others()[..5].iter().cloned().chain([answer()]).collect();
    let (_server, proxy) = through(only_named.clone()).await;
    let session = Session::open(Client::of(proxy.address()), NEWEST).await;
    let body = session.calling(7, "t", json!({})).send().await.body;
    assert_eq!(body, only_named.concat());
}

#[tokio::test]
async fn a_carried_call_does_not_take_them_for_its_answer() {
    let (_server, proxy) = through([others(), vec![answer()]].concat()).await;
    let answer = Client::of(proxy.address()).call("t", json!({})).await;
    let text = &answer.json()["result"]["content"][0]["text"];
    assert_eq!(text, "done");
}
