//! How long a second client waits while a first one takes what it can before anybody has said who they are.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::counted::value;
use crate::support::operator::with_operators;
use crate::support::proxy::Config;
use crate::support::{Client, Era, Rig, within};

const CONNECTIONS: usize = 20;

fn few_connections() -> Config {
    let limits = format!("connections = {CONNECTIONS}");
    with_operators(Config::never().section("limits", &limits))
}

/// How one client keeps a connection without a whole request.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Silent,
    HalfAHead,
    /// The body comes byte by byte.
    Drips,
    /// After a request of which the answer was read.
    Idle,
}

impl Hold {
    async fn begin(self, rig: &Rig) -> TcpStream {
        let mut stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
        let call = rig.client().calling("echo", json!({"text": "x"}));
        let whole = String::from_utf8(call.bytes()).unwrap();
        let whole = whole.replace("connection: close\r\n", "");
        let sent = match self {
            Self::Silent => "",
            Self::HalfAHead => &whole[..40],
            Self::Drips => &whole[..whole.len() - 20],
            Self::Idle => &whole,
        };
        // The listener may be full already, and the rest of the flood waits in the kernel.
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream
    }
}

#[tokio::test]
async fn connections_without_a_whole_request_keep_nobody_out() {
    for hold in [Hold::Silent, Hold::HalfAHead, Hold::Drips, Hold::Idle] {
        let rig = Rig::start(Era::Modern, few_connections()).await;
        let mut held = Vec::new();
        for number in 0..CONNECTIONS + 3 {
            let mut stream = hold.begin(&rig).await;
            if matches!(hold, Hold::Idle) && number < CONNECTIONS {
                let mut answer = [0; 16];
                stream.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"HTTP/1.1 200 OK\r");
            }
            held.push(stream);
        }
        let began = Instant::now();
        for _ in 0..3 {
            let answer = rig.client().call("echo", json!({"text": "y"})).await;
            assert_eq!(answer.into_text(), "y", "{hold:?}");
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(4), "{hold:?}: {took:?}");
        println!("{hold:?}: the second client had three answers after {took:?}");
    }
}

/// Whoever waits for an answer is not closed for somebody else.
#[tokio::test]
async fn a_connection_with_a_whole_request_does_not_give_way() {
    let rig = Rig::start(Era::Modern, few_connections()).await;
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = rig.client();
        waiting.push(tokio::spawn(async move {
            client.call("held", json!({})).await.into_text()
        }));
    }
    rig.upstream
        .until("held", "all run", |tally| {
            tally.started == u32::try_from(CONNECTIONS).unwrap()
        })
        .await;
    let client: Client = rig.client();
    let late = tokio::spawn(async move { client.call("echo", json!({"text": "y"})).await });
    // It has nothing to do but to wait for one of them.
    let early = tokio::time::timeout(Duration::from_millis(500), rig.upstream.until_idle()).await;
    assert!(early.is_err() && !late.is_finished());
    rig.upstream.release("held");
    for answer in waiting {
        let text = within(Duration::from_secs(15), "an answer", answer).await;
        assert_eq!(text.unwrap(), "released");
    }
    assert_eq!(late.await.unwrap().into_text(), "y");
    let name = "raincheck_refusals_total{limit=\"limits.connections\"}";
    assert!(value(&rig.proxy, name).await.unwrap() >= 1.0);
}
