//! Clients that send much, read nothing or listen to nothing: what that takes is bounded in bytes, and
//! everybody else's calls go on.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::memory;
use crate::operators_log::sample;
use crate::stdio_memory::at_rest;
use crate::support::client::{Client, Request};
use crate::support::{Config, Era, PATIENCE, Rig, eventually, in_both_eras};

in_both_eras!(
    many_large_bodies_are_bounded_in_bytes,
    large_bodies_on_one_http2_connection_are_bounded_in_bytes,
    a_large_body_has_room_again,
);

const MIB: usize = 1 << 20;

/// What a shipped pod has.
const POD: u64 = 512 * MIB as u64;

/// Small calls during a flood take no longer. They do in a build that is fit for use: the suite's is not.
const SOON: Duration = Duration::from_secs(2);

async fn many_large_bodies_are_bounded_in_bytes(era: Era) {
    let rig = Rig::start(era, Config::never()).await;
    let call = large(&rig.client(), 4 * MIB - 4096).bytes();
    let mut flood = JoinSet::new();
    for _ in 0..200 {
        flood.spawn(unfinished(rig.proxy.address(), call.clone()));
    }
    others_go_on(&rig).await;
    let mut open = Vec::new();
    while let Some(sent) = flood.join_next().await {
        open.push(sent.unwrap());
    }
    others_go_on(&rig).await;
    let refused = open.iter().filter(|(_, refused)| *refused).count();
    println!(
        "refused {refused}, peak {} MiB",
        memory::peak(rig.proxy.pid()) / MIB as u64
    );
    assert!((1..200).contains(&refused), "{refused} of 200 were refused");
    assert!(
        memory::peak(rig.proxy.pid()) < POD / 2,
        "{} bytes",
        memory::peak(rig.proxy.pid())
    );
    assert_eq!(large_calls(&rig), 0, "what did not come is not sent on");
}

async fn large_bodies_on_one_http2_connection_are_bounded_in_bytes(era: Era) {
    let rig = Rig::start(era, Config::never().http2()).await;
    let address = rig.proxy.address();
    let socket = TcpStream::connect(address).await.unwrap();
    let io = TokioIo::new(socket);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut flood = JoinSet::new();
    for _ in 0..200 {
        let mut sender = sender.clone();
        flood.spawn(async move {
            sender.ready().await.unwrap();
            let begun = stream::iter((0..63).map(|_| Bytes::from(vec![b' '; 64 << 10])));
            let body = begun.chain(stream::pending());
            let body =
                StreamBody::new(body.map(|piece| Ok::<_, std::io::Error>(Frame::data(piece))));
            let request = hyper::Request::post(format!("http://{address}/mcp"))
                .header("content-type", "application/json")
                .body(body)
                .unwrap();
            sender.send_request(request).await.map(|r| r.status())
        });
    }
    let mut refused = 0;
    // A busy machine takes a while to send so much.
    let mut patience = Duration::from_secs(30);
    while let Ok(Some(answered)) = tokio::time::timeout(patience, flood.join_next()).await {
        refused += usize::from(answered.unwrap().is_ok_and(|status| status == 503));
        others_go_on(&rig).await;
        patience = Duration::from_secs(3);
    }
    println!(
        "refused {refused}, peak {} MiB",
        memory::peak(rig.proxy.pid()) / MIB as u64
    );
    assert!(refused > 0, "none was refused");
    assert!(
        memory::peak(rig.proxy.pid()) < POD / 2,
        "{} bytes",
        memory::peak(rig.proxy.pid())
    );
}

async fn a_large_body_has_room_again(era: Era) {
    let limits = "body_bytes_max = \"1MiB\"\nbuffer_bytes_max = \"2MiB\"";
    let config = Config::never().section("admin", "listen = \"127.0.0.1:0\"");
    let rig = Rig::start(era, config.section("limits", limits)).await;
    let first = unfinished(
        rig.proxy.address(),
        large(&rig.client(), MIB - 4096).bytes(),
    );
    let (first, refused) = first.await;
    assert!(!refused);
    let refusal = eventually(PATIENCE, "there is no room", async || {
        let answer = large(&rig.client(), MIB - 4096).send().await;
        (answer.status != 200).then_some(answer)
    });
    let refusal = refusal.await;
    assert_eq!(refusal.refusal(), (503, -32603));
    assert_eq!(refusal.headers["connection"], "close");
    let counted = "raincheck_refusals_total{limit=\"limits.buffer_bytes_max\"}";
    assert!(sample(&rig, counted).await >= Some(1.0));
    others_go_on(&rig).await;
    drop(first);
    let room = async || {
        let answer = large(&rig.client(), MIB - 4096).send().await;
        answer.of_status(200)
    };
    eventually(PATIENCE, "there is room again", room).await;
}

#[tokio::test]
async fn who_does_not_read_is_cut_where_others_need_the_room() {
    let limits = "body_bytes_max = \"1MiB\"\nbuffer_bytes_max = \"8MiB\"";
    let rig = Rig::start(Era::Legacy, Config::never().section("limits", limits)).await;
    let ask = || {
        rig.client()
            .calling("big", json!({"bytes": 3 * MIB}))
            .bytes()
    };
    let mut deaf = Vec::new();
    // More than there is, and less than twice as much.
    for _ in 0..3 {
        deaf.push(Deaf::ask(rig.proxy.address(), ask()).await);
    }
    let large = || large(&rig.client(), MIB / 2).send();
    let short = async || large().await.status != 200;
    eventually(PATIENCE, "there is no room", short).await;
    others_go_on(&rig).await;
    let room = async || large().await.of_status(200);
    eventually(PATIENCE, "there is room again", room).await;
    let mut cut = 0;
    for deaf in deaf {
        cut += usize::from(deaf.rest().await < 3 * MIB);
    }
    assert!(cut > 0, "all of it was kept");
}

const LISTENERS: u64 = 25;

/// Ids in one request to listen: kept, they would take several times what the buffer does.
const IDS: usize = 10_000;

/// What a listener may cost: twice the buffer that its connection keeps while a request is under way. The request was read into it:
/// hyper reads up to 64 KiB at once, and doubles a buffer that has less room than that.
const LISTENER_BYTES_MAX: u64 = 2 * (128 << 10);

#[tokio::test]
async fn listeners_to_nothing_cost_little() {
    let limits = format!("listen_task_ids = {IDS}");
    let rig = Rig::start(Era::Modern, Config::always().section("limits", &limits)).await;
    let unknown = || uuid::Uuid::new_v4().to_string();
    let listen = || {
        let ids: Vec<String> = (0..IDS).map(|_| unknown()).collect();
        rig.client().listening(json!({"taskIds": ids})).stream()
    };
    let mut listening = vec![listen().await];
    let before = at_rest(rig.proxy.pid()).await;
    for _ in 0..LISTENERS {
        let mut stream = listen().await;
        let acknowledged: Value = stream.next().await;
        assert_eq!(
            acknowledged["params"]["notifications"]["taskIds"],
            json!([])
        );
        listening.push(stream);
    }
    let after = at_rest(rig.proxy.pid()).await;
    let each = after.saturating_sub(before) / LISTENERS;
    println!("{each} bytes a listener");
    assert!(each < LISTENER_BYTES_MAX, "{each} bytes a listener");
}

/// A call whose arguments are of that size.
fn large(client: &Client, bytes: usize) -> Request {
    client.calling("echo", json!({"text": "x".repeat(bytes)}))
}

fn large_calls(rig: &Rig) -> usize {
    let calls = rig.upstream.requests("tools/call");
    calls.iter().filter(|call| call.text().len() > MIB).count()
}

/// Sends all of a request but its last byte. True where it was refused.
async fn unfinished(address: std::net::SocketAddr, mut request: Vec<u8>) -> (TcpStream, bool) {
    request.pop();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reading, mut writing) = stream.split();
    let refused = tokio::select! {
        // A connection that was closed before everything was sent.
        _ = reading.read_u8() => true,
        sent = writing.write_all(&request) => sent.is_err(),
    };
    (stream, refused)
}

async fn others_go_on(rig: &Rig) {
    let began = Instant::now();
    let answer = rig.client().call("echo", json!({"text": "small"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let took = began.elapsed();
    assert!(took < SOON, "a small call took {took:?}");
}

/// A client that asks and does not read.
struct Deaf(TcpStream);

impl Deaf {
    async fn ask(address: std::net::SocketAddr, request: Vec<u8>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        SockRef::from(&socket).set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        // The answer is there.
        stream.readable().await.unwrap();
        Self(stream)
    }

    /// What it finds when it reads after all.
    async fn rest(mut self) -> usize {
        let mut found = Vec::new();
        let _ = self.0.read_to_end(&mut found).await;
        found.len()
    }
}
