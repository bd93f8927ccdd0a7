//! Connections that send nothing, or stop sending: they delay no other client, and are closed after a while.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::{Client, Config, Era, PATIENCE, Rig, within};

const HASTY: &str = "header_timeout = \"300ms\"";

/// How HTTP/2 begins, and an empty frame of settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn who_says_nothing_is_sent_away() {
    let rig = Rig::start(
        Era::Legacy,
        Config::never().http2().section("limits", HASTY),
    )
    .await;
    for begun in [&b""[..], b"PRI * HT", b"POST /mcp", PREFACE] {
        let mut stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        let reading = stream.read_to_end(&mut rest);
        let what = format!("the end of {:?}", String::from_utf8_lossy(begun));
        let _ = within(Duration::from_secs(5), &what, reading).await;
    }
}

#[tokio::test]
async fn who_waits_for_an_answer_is_not_sent_away() {
    let rig = Rig::start(
        Era::Modern,
        Config::never().http2().section("limits", HASTY),
    )
    .await;
    let (client, _) = rig.client().over_http2().await;
    let answer = client.call("slow", json!({"ms": 1500})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_refusal_is_heard_by_a_client_that_still_sends() {
    let config = Config::never().section("limits", "body_bytes_max = \"64KiB\"");
    for config in [config.clone(), config.http2()] {
        let rig = Rig::start(Era::Modern, config).await;
        let text = "x".repeat(1 << 20);
        let call = rig.client().calling("echo", json!({"text": text})).bytes();
        let (begun, rest) = call.split_at(128 << 10);
        let mut stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
        stream.write_all(begun).await.unwrap();
        // It is refused now.
        stream.readable().await.unwrap();
        stream.write_all(rest).await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        within(PATIENCE, "the refusal", reading).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("too large"), "{answer}");
    }
}

#[tokio::test]
async fn a_probe_is_answered_beside_those_who_ask_nothing() {
    let config = Config::never().probed("");
    let rig = Rig::start(Era::Legacy, config).await;
    let address = rig.proxy.probes().await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let began = Instant::now();
    let answer = Client::of(address).page("/livez").await;
    assert_eq!(answer.status, 200);
    let took = Instant::now() - began;
    // The silent ones are sent away after 3 s.
    assert!(took < Duration::from_secs(2), "{took:?}");
    drop(silent);
}

/// A page that leaves `Origin` out says where it is from all the same.
#[tokio::test]
async fn a_strange_page_without_an_origin_is_refused() {
    let rig = Rig::start(Era::Legacy, Config::never()).await;
    let get = |site: &str| {
        let about = "/.well-known/oauth-protected-resource";
        let request = rig.client().http(Method::GET, about);
        request.header("sec-fetch-site", site).send()
    };
    assert_eq!(get("cross-site").await.status, 403);
    assert_eq!(get("same-origin").await.status, 200);
}

/// The kernel asks a quiet client whether it is there: the timer of its connection is of that kind.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_vanished_is_noticed() {
    use crate::support::eventually;

    let rig = Rig::start(Era::Legacy, Config::never()).await;
    let stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
    let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
    let (ours, theirs) = (
        port(rig.proxy.address()),
        port(stream.local_addr().unwrap()),
    );
    let timer = || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let rows = table
            .lines()
            .map(|row| row.split_whitespace().collect::<Vec<_>>());
        let mut rows = rows
            .filter(|row| row.len() > 5 && row[1].ends_with(&ours) && row[2].ends_with(&theirs));
        rows.next().map(|row| row[5][..2].to_owned())
    };
    eventually(PATIENCE, "a keep-alive timer", async || match timer() {
        Some(kind) if kind == "02" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// While raincheck is busy, clients wait in the kernel. Beyond the length of that queue the kernel drops the first packet of
/// a connection, and its client tries again only after a second.
#[tokio::test]
async fn some_hundred_clients_may_connect_at_once() {
    let rig = Rig::start(Era::Legacy, Config::never()).await;
    rig.proxy.freeze();
    let mut waiting = Vec::new();
    for _ in 0..400 {
        let connecting = TcpStream::connect(rig.proxy.address());
        waiting.push(within(PATIENCE, "a connection", connecting).await.unwrap());
    }
    rig.proxy.thaw();
    let answer = rig.client().call("echo", json!({"text": "x"})).await;
    assert_eq!(answer.into_text(), "x");
}
