//! Streams as servers in the field write them: events of other names, bursts, and no stream at all.

mod bursts;
mod events;
mod missing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::http_request::WireRequest;
use crate::scripted::{self, Act};
use crate::support::{PATIENCE, eventually};

/// The head of a stream that ends with its connection.
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// A legacy server over Streamable HTTP that answers as it is written.
struct Scripted {
    server: scripted::Scripted,
    state: Arc<State>,
}

struct State {
    /// The events of the answer to a call, and to a list.
    call: Vec<String>,
    /// The whole answer to GET.
    get: &'static str,
    /// How many events were written, and whether that was all.
    written: AtomicUsize,
    is_finished: AtomicBool,
}

impl Scripted {
    async fn start(call: Vec<String>, get: &'static str) -> Self {
        let state = Arc::new(State {
            call,
            get,
            written: AtomicUsize::new(0),
            is_finished: AtomicBool::new(false),
        });
        let answering = Arc::clone(&state);
        let server = scripted::Scripted::start(move |request| {
            let mut acts = answering.answer(request);
            acts.push(Act::Close);
            acts
        });
        Self {
            server: server.await,
            state,
        }
    }

    fn url(&self) -> String {
        self.server.url()
    }

    /// Counts the requests of that JSON-RPC method, or else of that HTTP method.
    fn seen(&self, method: &str) -> usize {
        let requests = self.server.requests();
        let is_one =
            |it: &&WireRequest| *it.json()["method"].as_str().unwrap_or(&it.method) == *method;
        requests.iter().filter(is_one).count()
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
    fn answer(self: &Arc<Self>, request: &WireRequest) -> Vec<Act> {
        let message = request.json();
        let method = message["method"].as_str().unwrap_or_default();
        vec![match (&*request.method, method) {
            ("GET", _) => Act::send(self.get),
            ("POST", "tools/call" | "tools/list") => return self.events(&message["id"]),
            ("POST", "initialize") => json_answer(
                &message,
                &json!({"result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                }}),
            ),
            ("POST", "resources/subscribe") => json_answer(&message, &json!({"result": {}})),
            ("POST", _) if message["id"].is_null() || method.is_empty() => {
                Act::response("202 Accepted\r\nconnection: close", "")
            }
            ("POST", _) => {
                let error = json!({"error": {"code": -32601, "message": "Method not found"}});
                json_answer(&message, &error)
            }
            _ => Act::response("200 OK\r\nconnection: close", ""),
        }]
    }

    fn events(self: &Arc<Self>, id: &Value) -> Vec<Act> {
        let id = format!(r#""id":{id}"#);
        let events = self
            .call
            .iter()
            .map(|event| event.replace(r#""id":7"#, &id));
        let events: Vec<String> = events.collect();
        let (state, ended) = (Arc::clone(self), Arc::clone(self));
        let events = stream::iter(events.into_iter().enumerate()).map(move |(before, event)| {
            state.written.store(before, Ordering::Relaxed);
            event.into()
        });
        let ended = async move { ended.is_finished.store(true, Ordering::Relaxed) };
        vec![
            Act::send(STREAM),
            Act::SendAll(events.boxed()),
            Act::wait(ended),
        ]
    }
}

fn json_answer(asked: &Value, rest: &Value) -> Act {
    let mut message = json!({"jsonrpc": "2.0", "id": asked["id"]});
    for (key, value) in rest.as_object().unwrap() {
        message[key] = value.clone();
    }
    let head = "200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s\r\nconnection: close";
    Act::response(head, message.to_string())
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
