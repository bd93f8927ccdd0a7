//! The GET stream of a legacy client: what its server says there, as it is, and where it says nothing
//! a stream of raincheck's own.

use std::sync::{Arc, Mutex};

use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::client::{Client, Request};
use crate::support::{Config, Proxy};

/// A server that answers everything alike, and remembers the heads of what it was asked.
struct Canned {
    heads: Arc<Mutex<Vec<String>>>,
    proxy: Proxy,
}

impl Canned {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                seen.lock().unwrap().push(head);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let config = Config::never().section("upstream", "transport = \"streamable-http\"");
        let proxy = config.start(&url).await;
        Self { heads, proxy }
    }

    fn request(&self, verb: Method, revision: &str) -> Request {
        let request = Client::of(self.proxy.address()).http(verb, "/mcp");
        let request = request.header("accept", "text/event-stream");
        let request = request.header("mcp-session-id", "client-1");
        request.header("mcp-protocol-version", revision)
    }

    fn get(&self) -> Request {
        self.request(Method::GET, "2025-11-25")
    }

    /// The last request of a client: without the look of raincheck at its start.
    fn last_head(&self) -> String {
        let heads = self.heads.lock().unwrap();
        let mut of_clients = heads
            .iter()
            .filter(|head| !head.contains("server/discover"));
        of_clients.next_back().cloned().unwrap()
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-own: 1\r\nconnection: close\r\n\r\n\
    id: 1\nretry: 100\ndata: \n\n: a comment\n\nevent: message\nid: 2\ndata: {\"id\":1,\ndata: \"method\":\"ping\"}\n\n\
    data: {\"id\":\"raincheck/x\",\"result\":{}}\n\n\
    event: ping\ndata: {\"id\":\"raincheck/x\",\"result\":{}}\n\n\
    data: {\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"raincheck\\/x\"}}\n\n\
    data: {\"method\":\"notifications/message\",\"params\":{}}\n\n";

const READ: &str = "id: 1\nretry: 100\ndata: \n\n\
    event: message\nid: 2\ndata: {\"id\":1,\ndata: \"method\":\"ping\"}\n\n\
    event: ping\ndata: {\"id\":\"raincheck/x\",\"result\":{}}\n\n\
    data: {\"method\":\"notifications/message\",\"params\":{}}\n\n";

#[tokio::test]
async fn the_server_s_events_come_as_they_are_but_for_what_is_ours() {
    let server = Canned::start(STREAM).await;
    let answer = server.get().send().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, READ));
    assert_eq!(answer.headers["x-own"], "1");
    // Sessions of other revisions pass as bytes.
    let answer = server.request(Method::GET, "2025-06-18").send().await;
    assert!(answer.body.contains(": a comment") && answer.body.contains("raincheck/x"));
}

#[tokio::test]
async fn a_last_event_id_is_the_server_s_unless_it_is_ours() {
    let server = Canned::start(STREAM).await;
    server.get().header("last-event-id", "7").send().await;
    assert!(server.last_head().contains("last-event-id: 7\r\n"));
    assert!(server.last_head().contains("mcp-session-id: client-1\r\n"));
    // An unknown id of raincheck's own never reaches the server.
    let ours = server.get().header("last-event-id", "raincheck/7");
    assert_eq!(ours.send().await.status, 405);
    assert!(server.last_head().contains("last-event-id: 7\r\n"));
}

#[tokio::test]
async fn a_refusal_is_the_server_s() {
    let refusal =
        "HTTP/1.1 409 Conflict\r\ncontent-length: 3\r\nconnection: close\r\nx-own: 1\r\n\r\nno.";
    let server = Canned::start(refusal).await;
    for verb in [Method::GET, Method::DELETE] {
        let answer = server.request(verb, "2025-11-25").send().await;
        assert_eq!((answer.status, answer.body.as_str()), (409, "no."));
        assert_eq!(answer.headers["x-own"], "1");
    }
}

/// For what raincheck itself has to say.
#[tokio::test]
async fn a_server_without_a_stream_has_one_here() {
    let refusal = "HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let server = Canned::start(refusal).await;
    let mut stream = server.get().stream().await;
    assert_eq!(stream.status, 200);
    server.proxy.terminate();
    assert_eq!(stream.next_or_end().await, None);
    let server = Canned::start(refusal).await;
    let answer = server.request(Method::GET, "2025-06-18").send().await;
    assert_eq!(answer.status, 405);
}
