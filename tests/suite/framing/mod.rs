//! Where one request ends and the next begins: no client decides it for others. The server that we wrap answers
//! before it reads, and the next caller's request goes out on the same connection.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::authority::Authority;
use crate::scripted::{Act, Scripted};
use crate::support::{Client, Config, PATIENCE, Proxy, TempDir, within};
use crate::tls_client;

mod corpus;
mod early;

use corpus::Way;
use early::Early;

const ROUNDS: usize = 20;

/// What the next caller sends, and no other caller may get.
const SECRET: &str = "Bearer victim";

/// The same requests, over whatever the listener speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Http1,
    Http2,
    Tls,
}

/// One that answers early, with raincheck in front of it.
struct Rig {
    server: Early,
    proxy: Proxy,
    wire: Wire,
    authority: Authority,
    _files: TempDir,
}

impl Rig {
    async fn start(era: &str, wire: Wire) -> Self {
        let server = Early::start().await;
        let (authority, files) = (Authority::new(), TempDir::new());
        let config = Config::never().section("upstream", &format!("era = {era:?}"));
        let config = match wire {
            Wire::Http1 => config,
            Wire::Http2 => config.http2(),
            Wire::Tls => {
                let write = |name: &str, text: &str| {
                    let path = files.path().join(name);
                    std::fs::write(&path, text).unwrap();
                    format!("{name} = \"{}\"\n", path.display())
                };
                let (certificate, key) = authority.issue();
                let lines = write("certificate", &certificate) + &write("key", &key);
                config.section("listen.tls", &lines)
            }
        };
        let proxy = config.start(&server.url()).await;
        Self {
            server,
            proxy,
            wire,
            authority,
            _files: files,
        }
    }

    /// A request that says of itself that it has `length` bytes more, none of which ever come.
    async fn attack(&self, method: &Method, length: usize) -> u16 {
        let attacking = async {
            match self.wire {
                Wire::Http1 => {
                    self.attack_plainly(&mut self.connect().await, method, length)
                        .await
                }
                Wire::Tls => {
                    self.attack_plainly(&mut self.seal().await, method, length)
                        .await
                }
                Wire::Http2 => self.attack_over_http2(method, length).await,
            }
        };
        within(PATIENCE, "an answer to an attack", attacking).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }

    async fn seal(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let trusted = [&self.authority];
        let sealed = tls_client::connect(self.proxy.address(), &trusted, None);
        sealed.await.unwrap()
    }

    /// The status, on a connection that is closed then.
    async fn attack_plainly<S>(&self, stream: &mut S, method: &Method, length: usize) -> u16
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let head = format!(
            "{method} /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
             mcp-session-id: s\r\nmcp-protocol-version: 2025-11-25\r\n\
             content-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        status.parse().unwrap_or_default()
    }

    async fn attack_over_http2(&self, method: &Method, length: usize) -> u16 {
        let io = TokioIo::new(self.connect().await);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}/mcp", self.proxy.address()))
            .header("accept", "text/event-stream")
            .header("mcp-session-id", "s")
            .header("mcp-protocol-version", "2025-11-25")
            .header("content-length", length)
            .body(StreamBody::new(never).boxed_unsync())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        response.status().as_u16()
    }

    /// The next caller, with its own credentials; whether it was answered.
    async fn speak(&self, number: usize) -> bool {
        let ping = json!({"jsonrpc": "2.0", "id": number, "method": "ping"});
        let ping = ping.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-session-id: v\r\n\
             mcp-protocol-version: 2025-11-25\r\nauthorization: {SECRET}\r\nx-victim: {number}\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{ping}",
            ping.len()
        );
        let mut answer = String::new();
        match self.wire {
            Wire::Tls => {
                let mut stream = self.seal().await;
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.read_to_string(&mut answer).await.unwrap();
            }
            Wire::Http1 | Wire::Http2 => {
                let mut stream = self.connect().await;
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.read_to_string(&mut answer).await.unwrap();
            }
        }
        answer.starts_with("HTTP/1.1 200")
    }

    /// Every caller's request arrived as it was meant, and nothing else did.
    fn assert_in_step(&self, callers: usize) {
        let seen = self.server.seen();
        for head in &seen {
            assert_eq!(head.fault, None, "{head:?}");
            assert_eq!(head.line, "POST /mcp HTTP/1.1", "{head:?}");
            assert_eq!(head.header("authorization"), Some(SECRET), "{head:?}");
        }
        assert_eq!(seen.len(), callers);
    }
}

/// The bytes that a request takes which says nothing but where it goes.
fn head_bytes(address: SocketAddr) -> usize {
    format!("POST /mcp HTTP/1.1\r\nhost: {address}\r\n").len()
}

async fn no_body_is_announced_that_does_not_come(wire: Wire) {
    let rig = Rig::start("legacy", wire).await;
    let length = head_bytes(rig.server.address());
    for number in 0..ROUNDS {
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(rig.attack(&method, length).await, 400, "{method}");
        }
        let speaking = rig.speak(number);
        assert!(within(PATIENCE, "the next caller's answer", speaking).await);
    }
    rig.assert_in_step(ROUNDS);
}

#[tokio::test]
async fn no_body_is_announced_that_does_not_come_over_http1() {
    no_body_is_announced_that_does_not_come(Wire::Http1).await;
}

#[tokio::test]
async fn no_body_is_announced_that_does_not_come_over_http2() {
    no_body_is_announced_that_does_not_come(Wire::Http2).await;
}

#[tokio::test]
async fn no_body_is_announced_that_does_not_come_over_tls() {
    no_body_is_announced_that_does_not_come(Wire::Tls).await;
}

/// Only the door knows of `Allow`; the server, which would tell what it was sent, hears nothing of it.
#[tokio::test]
async fn other_methods_are_not_passed_on() {
    let rig = Rig::start("legacy", Wire::Http1).await;
    let client = Client::of(rig.proxy.address());
    for method in ["TRACE", "OPTIONS", "HEAD", "PUT", "PATCH", "CONFUSE"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = client.http(method.clone(), "/mcp").send().await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.headers["allow"], "POST, GET, DELETE", "{method}");
        let about = "/.well-known/oauth-protected-resource";
        let answer = client.http(method.clone(), about).send().await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.headers["allow"], "GET", "{method}");
    }
    let posted = client.http(Method::POST, "/.well-known/oauth-protected-resource");
    assert_eq!(posted.send().await.status, 405);
    assert!(rig.server.seen().is_empty(), "{:?}", rig.server.seen());
}

/// How long a request that may have no end is waited for.
const LISTENED: Duration = Duration::from_millis(400);

/// Sends the bytes, and reads what there is to read.
async fn send(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = Vec::new();
    // Refused at once, a long one may not be taken to its end.
    let sending = async {
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    let _ = timeout(LISTENED, sending).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Each of the corpus, and an honest caller after it.
async fn no_canary_gets_through(era: &str, wire: Wire, way: Way) {
    let rig = Rig::start(era, wire).await;
    let address = rig.proxy.address();
    let http1 = way.corpus();
    let mut attacks: Vec<(String, Vec<u8>)> = http1
        .into_iter()
        .map(|(name, text)| (name, text.into_bytes()))
        .collect();
    assert!(attacks.len() >= 55, "{}", attacks.len());
    if wire == Wire::Http2 {
        let http2 = corpus::over_http2(&way).into_iter();
        attacks.extend(http2.map(|(name, bytes)| (format!("HTTP/2: {name}"), bytes)));
    }
    let callers = attacks.len();
    let trying = attacks.into_iter().enumerate().map(|(number, attack)| {
        let way = &way;
        async move {
            send(address, &attack.1).await;
            let lines = format!("X-Caller: {number}\r\nConnection: close\r\n");
            let honest = send(address, way.post(&lines).as_bytes()).await;
            assert!(honest.starts_with("HTTP/1.1 200"), "{}: {honest}", attack.0);
        }
    });
    let trying = futures_util::stream::iter(trying).buffer_unordered(16);
    within(PATIENCE * 4, "the corpus", trying.collect::<Vec<()>>()).await;
    let seen = rig.server.seen();
    for head in &seen {
        assert_eq!(head.fault, None, "{head:?}");
        assert_eq!(head.header("x-canary"), None, "{head:?}");
        let target = head.line.split(' ').nth(1).unwrap_or_default();
        assert_eq!(target.split('?').next(), Some("/mcp"), "{head:?}");
    }
    for number in 0..callers {
        let number = number.to_string();
        let arrived = seen
            .iter()
            .filter(|head| head.header("x-caller") == Some(&*number));
        assert_eq!(arrived.count(), 1, "caller {number}");
    }
}

#[tokio::test]
async fn no_canary_gets_through_to_a_modern_server() {
    no_canary_gets_through("modern", Wire::Http1, Way::modern()).await;
}

#[tokio::test]
async fn no_canary_gets_through_to_a_legacy_server() {
    no_canary_gets_through("legacy", Wire::Http1, Way::legacy()).await;
}

#[tokio::test]
async fn no_canary_gets_through_on_a_session() {
    no_canary_gets_through("legacy", Wire::Http1, Way::session()).await;
}

#[tokio::test]
async fn no_canary_gets_through_over_http2() {
    no_canary_gets_through("legacy", Wire::Http2, Way::session()).await;
}

/// RFC 9112, 6.1: what follows such a request on its connection may be half of another request.
#[tokio::test]
async fn a_request_with_a_length_and_chunks_ends_its_connection() {
    let way = Way::modern();
    let orders = [
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 7\r\n",
    ];
    for wire in [Wire::Http1, Wire::Http2] {
        let rig = Rig::start("modern", wire).await;
        for lines in orders {
            // With a whole request behind the last chunk.
            let mut stream = TcpStream::connect(rig.proxy.address()).await.unwrap();
            let bytes = way.chunked(lines).into_bytes();
            stream.write_all(&bytes).await.unwrap();
            let mut answer = String::new();
            let ended = stream.read_to_string(&mut answer);
            within(PATIENCE, "the end of the connection", ended)
                .await
                .unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{wire:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{wire:?}: {answer}");
        }
    }
}

/// A client that asked for no other protocol is not told that it speaks one.
#[tokio::test]
async fn a_switch_of_protocols_is_not_passed_on() {
    let server = Scripted::start(|request| {
        let method = request.json()["method"].clone();
        // At its start raincheck looks whether the server is there.
        if method == "server/discover" || method == "initialize" {
            return vec![Act::Close];
        }
        let switch =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        vec![Act::send(switch), Act::hang()]
    });
    let server = server.await;
    let config = Config::never().section("upstream", "era = \"legacy\"");
    let proxy = config.start(&server.url()).await;
    let lines = "Connection: Upgrade\r\nUpgrade: x\r\n";
    let answer = send(proxy.address(), Way::session().post(lines).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
}
