//! A legacy client that is cut off and comes back: it reads one call's stream wherever it can be had.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request::Builder;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::events::Events;

const NEWEST: &str = "2025-11-25";
const SESSION: &str = "mcp-session-id";

/// The id of the one call of a session.
pub(crate) const CALL: u64 = 7;

/// No head takes longer: a held call's comes after 3 s, whatever the server does.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session, which every replica knows.
#[derive(Debug)]
pub(crate) struct Session {
    name: String,
}

/// What came on a stream.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    /// Null in events that only tell where to come back to.
    pub(crate) message: Value,
}

impl Session {
    pub(crate) async fn open(at: SocketAddr) -> Result<Self, String> {
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": NEWEST, "capabilities": {},
            "clientInfo": {"name": "bars", "version": "1"},
        }});
        let (response, _sender) = send(at, post(), &hello.to_string()).await?;
        let name = response.headers().get(SESSION);
        let name = name.and_then(|name| name.to_str().ok());
        let name = name.ok_or("a session without a name")?.to_owned();
        let session = Self { name };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let post = session.on_it(post());
        send(at, post, &ready.to_string()).await?;
        Ok(session)
    }

    /// Calls the tool once.
    pub(crate) async fn call(
        &self,
        at: SocketAddr,
        tool: &str,
        arguments: Value,
    ) -> Result<Stream, String> {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "t"}});
        let call = json!({"jsonrpc": "2.0", "id": CALL, "method": "tools/call", "params": params});
        Stream::of(send(at, self.on_it(post()), &call.to_string()).await?)
    }

    /// Comes back to what is behind that event.
    pub(crate) async fn back(&self, at: SocketAddr, last: &str) -> Result<Stream, String> {
        let get = Request::get("/mcp").header("accept", "text/event-stream");
        let get = self.on_it(get).header("last-event-id", last);
        Stream::of(send(at, get, "").await?)
    }

    fn on_it(&self, request: Builder) -> Builder {
        let request = request.header(SESSION, &self.name);
        request.header("mcp-protocol-version", NEWEST)
    }
}

fn post() -> Builder {
    Request::post("/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
}

type Sent = (Response<Incoming>, SendRequest<Full<Bytes>>);

/// On a connection of its own, which ends when it is dropped. Refusals are evidence.
async fn send(at: SocketAddr, request: Builder, body: &str) -> Result<Sent, String> {
    let sent = tokio::time::timeout(PATIENCE, try_send(at, request, body)).await;
    let (response, sender) = sent.map_err(|_elapsed| format!("no head in {PATIENCE:?}"))??;
    let status = response.status();
    if status.is_success() {
        Ok((response, sender))
    } else {
        Err(format!("HTTP {status}"))
    }
}

async fn try_send(at: SocketAddr, request: Builder, body: &str) -> Result<Sent, String> {
    let stream = TcpStream::connect(at).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let (mut sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let body = Full::new(Bytes::from(body.to_owned()));
    let request = request.header("host", at.to_string()).body(body);
    let request = request.map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| error.to_string())?;
    Ok((response, sender))
}

/// A stream of events. Dropped, the client is cut off.
#[derive(Debug)]
pub(crate) struct Stream {
    events: Events,
    _sender: SendRequest<Full<Bytes>>,
}

impl Stream {
    fn of((response, sender): Sent) -> Result<Self, String> {
        let kind = response.headers().get("content-type");
        if kind.is_none_or(|kind| kind != "text/event-stream") {
            return Err(format!("no stream of events: {kind:?}"));
        }
        Ok(Self {
            events: Events::of(response.into_body()),
            _sender: sender,
        })
    }

    /// The next event; `None` when the stream has ended or broke. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.events.next().await?;
            let event = String::from_utf8_lossy(&event);
            let field = |name| event.lines().find_map(|line| line.strip_prefix(name));
            let message = field("data:").and_then(|data| serde_json::from_str(data).ok());
            let id = field("id:").map(|id| id.trim().to_owned());
            if id.is_some() || message.is_some() {
                let message = message.unwrap_or_default();
                return Some(Event { id, message });
            }
        }
    }
}
