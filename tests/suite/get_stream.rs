//! The GET stream of a legacy client: what its server says there, as it is, and where it says nothing
//! a stream of raincheck's own.

use hyper::Method;

use crate::scripted::{Act, Scripted};
use crate::support::client::{Client, Request};
use crate::support::{Config, Proxy};

/// A server that answers everything alike.
struct Canned {
    server: Scripted,
    proxy: Proxy,
}

impl Canned {
    async fn start(answer: &'static str) -> Self {
        let server = Scripted::start(move |_| vec![Act::send(answer), Act::Close]).await;
        let config = Config::never().section("upstream", "transport = \"streamable-http\"");
        let proxy = config.start(&server.url()).await;
        Self { server, proxy }
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

    /// A header of the last request of a client: without the look of raincheck at its start.
    fn last_header(&self, name: &str) -> Option<String> {
        let mut requests = self.server.requests();
        requests.retain(|it| it.header("mcp-method") != Some("server/discover"));
        requests.last().unwrap().header(name).map(str::to_owned)
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
    let last_event = || server.last_header("last-event-id");
    assert_eq!(last_event().as_deref(), Some("7"));
    let session = server.last_header("mcp-session-id");
    assert_eq!(session.as_deref(), Some("client-1"));
    // An unknown id of raincheck's own never reaches the server.
    let ours = server.get().header("last-event-id", "raincheck/7");
    assert_eq!(ours.send().await.status, 405);
    assert_eq!(last_event().as_deref(), Some("7"));
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
