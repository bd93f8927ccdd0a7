//! Streams as servers in the field write them: events of other names, bursts, and no stream at all.

mod bursts;
mod events;
mod missing;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{PATIENCE, eventually};

/// The head of a stream that ends with its connection.
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A legacy server over Streamable HTTP that answers as it is written.
struct Scripted {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// The events of the answer to a call, and to a list.
    call: Vec<String>,
    /// The whole answer to GET.
    get: &'static str,
    /// The methods that came.
    seen: Mutex<Vec<String>>,
    /// How many events were written, and whether that was all.
    written: AtomicUsize,
    is_finished: AtomicBool,
}

impl Scripted {
    async fn start(call: Vec<String>, get: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            call,
            get,
            seen: Mutex::default(),
            written: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
        });
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                tokio::spawn(async move { state.answer(BufReader::new(stream)).await });
            }
        });
        Self { address, state }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn seen(&self, method: &str) -> usize {
        let seen = self.state.seen.lock().unwrap();
        seen.iter().filter(|it| *it == method).count()
    }

    /// Waits until the server has written everything, or is read no more.
    async fn until_quiet(&self) {
        let (mut last, mut quiet) = (0, 0);
        let mut look = || {
            let written = self.state.written.load(Ordering::Relaxed);
            quiet = if written == last { quiet + 1 } else { 0 };
            last = written;
            self.state.is_finished.load(Ordering::Relaxed) || (written > 0 && quiet > 40)
        };
        eventually(PATIENCE, "the server is quiet", || {
            std::future::ready(look())
        })
        .await;
    }
}

impl State {
    /// Answers one request. `None`: the connection broke.
    async fn answer(&self, mut stream: BufReader<TcpStream>) -> Option<()> {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            if line.trim().is_empty() {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let verb = head.split(' ').next().unwrap_or_default().to_owned();
        let name = if method.is_empty() { &verb } else { &method };
        self.seen.lock().unwrap().push(name.clone());
        let text = match (&*verb, &*method) {
            ("get", _) => self.get.to_owned(),
            ("post", "tools/call" | "tools/list") => {
                stream.write_all(STREAM.as_bytes()).await.ok()?;
                let id = format!(r#""id":{}"#, message["id"]);
                for event in &self.call {
                    let event = event.replace(r#""id":7"#, &id);
                    stream.write_all(event.as_bytes()).await.ok()?;
                    self.written.fetch_add(1, Ordering::Relaxed);
                }
                self.is_finished.store(true, Ordering::Relaxed);
                String::new()
            }
            ("post", "initialize") => json_answer(
                &message,
                &json!({"result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }}),
            ),
            ("post", "resources/subscribe") => json_answer(&message, &json!({"result": {}})),
            ("post", _) if message["id"].is_null() || method.is_empty() => {
                "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()
            }
            ("post", _) => {
                let error = json!({"error": {"code": -32601, "message": "Method not found"}});
                json_answer(&message, &error)
            }
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        };
        stream.write_all(text.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()
    }
}

fn json_answer(asked: &Value, rest: &Value) -> String {
    let mut message = json!({"jsonrpc": "2.0", "id": asked["id"]});
    for (key, value) in rest.as_object().unwrap() {
        message[key] = value.clone();
    }
    let body = message.to_string();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A notification as one event.
fn note(number: usize, padding: usize) -> String {
    let params = json!({"level": "info", "data": number, "padding": ".".repeat(padding)});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params});
    format!("event: message\ndata: {note}\n\n")
}

/// The answer to the request 7.
fn answer_json(text: &str) -> String {
    let content = json!([{"type": "text", "text": text}]);
    json!({"jsonrpc": "2.0", "id": 7, "result": {"content": content}}).to_string()
}
