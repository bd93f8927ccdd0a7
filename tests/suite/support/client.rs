//! A client of revision 2026-07-28 that writes requests by hand, with methods named after the domain.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

pub(crate) use super::answer::{Answer, Task};
use super::stream::{Stream, last_event};
use super::tap::{Arrived, Tap};
use super::{PATIENCE, eventually, within};

pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// A client: the address that it calls, the capabilities that it declares, and its credentials. Each request
/// has a connection of its own, or a stream of one HTTP/2 connection.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    capabilities: Value,
    authorization: Option<Arc<str>>,
    http2: Option<http2::SendRequest<Full<Bytes>>>,
    next_id: Arc<AtomicU64>,
}

impl Client {
    /// Declares Tasks and elicitation.
    pub(crate) fn of(address: SocketAddr) -> Self {
        Self {
            address,
            capabilities: json!({"elicitation": {}, "extensions": {TASKS: {}}}),
            authorization: None,
            http2: None,
            next_id: Arc::default(),
        }
    }

    pub(crate) fn without_tasks(mut self) -> Self {
        self.capabilities = json!({"elicitation": {}});
        self
    }

    pub(crate) fn declaring(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    pub(crate) fn named(mut self, authorization: impl Into<Arc<str>>) -> Self {
        self.authorization = Some(authorization.into());
        self
    }

    /// The same client after the proxy came back elsewhere.
    pub(crate) fn at(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Over one HTTP/2 connection, and everything that arrives on it.
    pub(crate) async fn over_http2(mut self) -> (Self, Arrived) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (tap, arrived) = Tap::new(stream);
        let io = TokioIo::new(tap);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        self.http2 = Some(sender);
        (self, arrived)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.calling(tool, arguments).send().await
    }

    /// A call that is not sent yet.
    pub(crate) fn calling(&self, tool: &str, arguments: Value) -> Request {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .header("mcp-name", tool)
    }

    /// A request with everything that the specification demands, except for `Mcp-Name`.
    pub(crate) fn request(&self, method: &str, mut params: Value) -> Request {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientInfo"] =
            json!({"name": "suite", "version": "1"});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.post(message.to_string())
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
    }

    /// A body as it is, with the headers of any client.
    pub(crate) fn post(&self, body: impl Into<Bytes>) -> Request {
        self.http(Method::POST, "/mcp")
            .body(body)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
    }

    pub(crate) fn http(&self, verb: Method, path: &str) -> Request {
        let request = Request {
            client: self.clone(),
            verb,
            path: path.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        }
    }

    /// Gets a page by GET, as a probe does.
    pub(crate) async fn page(&self, path: &str) -> Answer {
        self.http(Method::GET, path).send().await
    }

    /// Asks for a page until its status is as wanted.
    pub(crate) async fn until_page(&self, path: &str, status: u16) -> Answer {
        let asking = async || {
            let answer = self.page(path).await;
            let seen = answer.status;
            (seen == status).then_some(answer).ok_or(seen)
        };
        eventually(PATIENCE, &format!("{path} says {status}"), asking).await
    }

    pub(crate) async fn get(&self, task: &Task) -> Value {
        self.asking("tasks/get", task).send().await.into_result()
    }

    pub(crate) async fn update(&self, task: &Task, answers: Value) -> Answer {
        self.updating(task, answers).send().await
    }

    pub(crate) fn updating(&self, task: &Task, answers: Value) -> Request {
        let params = json!({"taskId": task.id, "inputResponses": answers});
        self.request("tasks/update", params)
            .header("mcp-name", &task.id)
    }

    pub(crate) async fn cancel(&self, task: &Task) -> Answer {
        self.asking("tasks/cancel", task).send().await
    }

    pub(crate) fn asking(&self, method: &str, task: &Task) -> Request {
        self.request(method, json!({"taskId": task.id}))
            .header("mcp-name", &task.id)
    }

    /// Polls until the task has this status.
    pub(crate) async fn until(&self, task: &Task, status: &str) -> Value {
        self.until_it(task, status, |state| state["status"] == status)
            .await
    }

    /// Polls until the task is as wanted.
    pub(crate) async fn until_it(
        &self,
        task: &Task,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("the task is {what}");
        eventually(PATIENCE, &what, async || {
            let state = self.get(task).await;
            if wanted(&state) {
                Ok(state)
            } else {
                Err(state)
            }
        })
        .await
    }

    /// A subscription to these tasks.
    pub(crate) async fn listen(&self, tasks: &[&Task]) -> Stream {
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        self.listening(json!({"taskIds": ids})).stream().await
    }

    pub(crate) fn listening(&self, filter: Value) -> Request {
        self.request("subscriptions/listen", json!({"notifications": filter}))
    }
}

/// A request that is not sent yet.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    client: Client,
    verb: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Request {
    /// Sets a header, in place of any other of that name.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a header beside others of that name.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Puts a query after the path.
    pub(crate) fn query(mut self, query: &str) -> Self {
        self.path = format!("{}?{query}", self.path);
        self
    }

    /// Changes the JSON of the body.
    pub(crate) fn edit(mut self, change: impl FnOnce(&mut Value)) -> Self {
        let mut message = serde_json::from_slice(&self.body).unwrap();
        change(&mut message);
        self.body = Bytes::from(message.to_string());
        self
    }

    /// Puts other bytes into the body, where JSON would not keep them.
    pub(crate) fn replace(mut self, from: &str, to: &str) -> Self {
        let text = std::str::from_utf8(&self.body).unwrap();
        self.body = Bytes::from(text.replace(from, to));
        self
    }

    pub(crate) async fn send(self) -> Answer {
        let what = format!("an answer to {}", String::from_utf8_lossy(&self.body));
        within(PATIENCE * 2, &what, self.exchange()).await
    }

    /// The request as HTTP/1.1 writes it, the last on its connection.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.verb, self.path);
        let own = [
            ("host".to_owned(), self.client.address.to_string()),
            ("connection".to_owned(), "close".to_owned()),
            ("content-length".to_owned(), self.body.len().to_string()),
        ];
        for (name, value) in own.iter().chain(&self.headers) {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head += "\r\n";
        [head.as_bytes(), &self.body].concat()
    }

    /// The request for a connection of HTTP/1.1 that lives on.
    pub(crate) fn into_http(self) -> hyper::Request<Full<Bytes>> {
        let mut request = hyper::Request::builder().method(self.verb).uri(self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.header("host", self.client.address.to_string());
        request.body(Full::new(self.body)).unwrap()
    }

    /// Sends the request; dropped before it resolves, the client hangs up.
    async fn exchange(self) -> Answer {
        let (response, connection) = self.open().await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(connection);
        let body = String::from_utf8(body.to_vec()).unwrap();
        let is_stream = parts
            .headers
            .get("content-type")
            .is_some_and(|kind| kind == "text/event-stream");
        let text = if is_stream {
            last_event(&body)
        } else {
            body.clone()
        };
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text,
            body,
        }
    }

    /// The answer, unless the client hangs up before it came.
    pub(crate) async fn or_hang_up_after(self, patience: Duration) -> Option<Answer> {
        tokio::time::timeout(patience, self.exchange()).await.ok()
    }

    /// The response as it streams; the client hangs up when it is dropped.
    pub(crate) async fn stream(self) -> Stream {
        let (response, connection) =
            within(PATIENCE, "the head of a streamed response", self.open()).await;
        Stream::new(response, connection)
    }

    async fn open(self) -> (Response<Incoming>, Connection) {
        let mut request = hyper::Request::builder().method(self.verb);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(mut sender) = self.client.http2 {
            let uri = format!("http://{}{}", self.client.address, self.path);
            let request = request.uri(uri).body(Full::new(self.body)).unwrap();
            sender.ready().await.unwrap();
            return (
                sender
                    .send_request(request)
                    .await
                    .unwrap_or_else(|error| panic!("{error:?}")),
                Connection(None),
            );
        }
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", self.client.address.to_string());
        }
        let request = request.uri(self.path).body(Full::new(self.body)).unwrap();
        let stream = TcpStream::connect(self.client.address).await.unwrap();
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        (
            sender.send_request(request).await.unwrap(),
            Connection(Some(tasks)),
        )
    }
}

/// What keeps an HTTP/1.1 connection open; dropped, the client is gone.
#[derive(Debug)]
pub(crate) struct Connection(
    #[expect(dead_code, reason = "held for what dropping it does")]
    Option<tokio::task::JoinSet<hyper::Result<()>>>,
);
