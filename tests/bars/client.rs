//! A modern client that takes every answer, and every failure to answer, as a value.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::events::Events;

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// No bar waits longer for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What came back.
#[derive(Debug, Clone)]
pub(crate) enum Heard {
    Result(Value),
    /// A JSON-RPC error, and the HTTP status it rode on.
    Error {
        status: u16,
        error: Value,
    },
    /// Nothing that could be read: the connection broke, or no answer came in time.
    Broken(#[expect(dead_code, reason = "shown as evidence")] String),
}

impl Heard {
    /// The id of an announced task.
    pub(crate) fn task(&self) -> Option<String> {
        match self {
            Self::Result(result) if result["resultType"] == "task" => {
                result["taskId"].as_str().map(ToOwned::to_owned)
            }
            Self::Result(_) | Self::Error { .. } | Self::Broken(_) => None,
        }
    }

    pub(crate) fn code(&self) -> Option<i64> {
        match self {
            Self::Error { error, .. } => error["code"].as_i64(),
            Self::Result(_) | Self::Broken(_) => None,
        }
    }

    /// The answer says that the task does not exist.
    pub(crate) fn is_unknown(&self) -> bool {
        self.code() == Some(-32602)
    }

    /// The one refusal that an outage may have: 5xx, with our internal error.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Error { status: 503, .. }) && self.code() == Some(-32603)
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        matches!(self, Self::Result(result) if *result == json!({"resultType": "complete"}))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    next_id: Arc<AtomicU64>,
    idle: Arc<Mutex<Vec<SendRequest<Full<Bytes>>>>>,
}

impl Client {
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self {
            address,
            next_id: Arc::default(),
            idle: Arc::default(),
        }
    }

    /// The same without open connections.
    pub(crate) fn anew(&self) -> Self {
        Self::of(self.address)
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Heard {
        let params = json!({"name": tool, "arguments": arguments});
        self.ask("tools/call", Some(tool), params).await
    }

    pub(crate) async fn get(&self, id: &str) -> Heard {
        self.ask("tasks/get", Some(id), json!({"taskId": id})).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Heard {
        self.ask("tasks/cancel", Some(id), json!({"taskId": id}))
            .await
    }

    pub(crate) async fn update(&self, id: &str, answers: Value) -> Heard {
        let params = json!({"taskId": id, "inputResponses": answers});
        self.ask("tasks/update", Some(id), params).await
    }

    /// Sent once, whatever happens.
    pub(crate) async fn ask(&self, method: &str, name: Option<&str>, params: Value) -> Heard {
        let request = self.request(method, name, params);
        match tokio::time::timeout(PATIENCE, self.exchange(request)).await {
            Ok(Ok(heard)) => heard,
            Ok(Err(why)) => Heard::Broken(why),
            Err(_elapsed) => Heard::Broken(format!("no answer to {method} in {PATIENCE:?}")),
        }
    }

    /// The response as it comes, on a connection that ends when it is dropped.
    pub(crate) async fn stream(&self, method: &str, params: Value) -> Result<Stream, String> {
        let mut sender = self.connect().await?;
        let request = self.request(method, None, params);
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| error.to_string())?;
        Ok(Stream {
            events: Events::of(response.into_body()),
            _sender: sender,
        })
    }

    fn request(&self, method: &str, name: Option<&str>, mut params: Value) -> Request<Full<Bytes>> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bars", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {TASKS: {}}},
        });
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut request = Request::post("/mcp")
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let body = Full::new(Bytes::from(message.to_string()));
        request.body(body).expect("a request of our own making")
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Heard, String> {
        let mut sender = match self.parked() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await;
        let heard = read(response.map_err(|error| error.to_string())?).await?;
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(sender);
        }
        Ok(heard)
    }

    /// A connection that is open as far as is known here.
    fn parked(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().ok()?;
        while let Some(sender) = idle.pop() {
            if sender.is_ready() && !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

async fn read(response: Response<Incoming>) -> Result<Heard, String> {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await;
    let bytes = body.map_err(|error| error.to_string())?.to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let json = match text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data:"))
    {
        Some(data) => data,
        None => &text,
    };
    let Ok(mut message) = serde_json::from_str::<Value>(json) else {
        return Err(format!(
            "HTTP {status} with a body that is no JSON-RPC: {text:?}"
        ));
    };
    let error = message["error"].take();
    if error.is_null() {
        Ok(Heard::Result(message["result"].take()))
    } else {
        Ok(Heard::Error { status, error })
    }
}

/// A stream of events. Dropped, the client hangs up.
#[derive(Debug)]
pub(crate) struct Stream {
    events: Events,
    _sender: SendRequest<Full<Bytes>>,
}

impl Stream {
    /// The next message; `None` when the stream has ended or broke.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let event = self.events.next().await?;
            let event = String::from_utf8_lossy(&event);
            let data = event.lines().find_map(|line| line.strip_prefix("data:"));
            if let Some(message) = data.and_then(|data| serde_json::from_str(data).ok()) {
                return Some(message);
            }
        }
    }
}
