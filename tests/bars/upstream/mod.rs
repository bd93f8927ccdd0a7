//! A server that counts: what it is asked to run it writes into the book, however it is killed or cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::book::Book;
use super::eventually::eventually;
use super::hyper_server::{self, Body, empty, event_stream, json};
use super::scripted::Listening;

mod legacy;
mod modern;

/// The kinds of servers that lose a proxy differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Sessions, and streams that can be read on after a cut.
    Resumable,
    /// The same, but only the second event of a stream shows it.
    Late,
    /// Sessions, and streams that are gone when they are cut.
    Plain,
    /// Stateless; a stream that is closed is a call that is cancelled.
    Modern,
}

impl Flavour {
    pub(crate) const ALL: [Self; 3] = [Self::Resumable, Self::Plain, Self::Modern];

    pub(crate) fn era(self) -> &'static str {
        match self {
            Self::Resumable | Self::Late | Self::Plain => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// What one life of a server knows; a killed server forgets it.
#[derive(Debug)]
struct Shared {
    flavour: Flavour,
    book: Book,
    /// Cancelled when the server is killed.
    life: CancellationToken,
    legacy: legacy::Sessions,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Upstream {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Upstream {
    pub(crate) async fn start(flavour: Flavour, book: Book) -> Self {
        Self::start_at(flavour, book, ([127, 0, 0, 1], 0).into()).await
    }

    async fn start_at(flavour: Flavour, book: Book, address: SocketAddr) -> Self {
        // The life before gives the port back as soon as its runtime comes to it.
        let bind = async || TcpListener::bind(address).await;
        let listener = eventually(Duration::from_secs(10), "a port for the server", bind).await;
        let shared = Arc::new(Shared {
            flavour,
            book,
            life: CancellationToken::new(),
            legacy: legacy::Sessions::default(),
        });
        let serving = Arc::clone(&shared);
        let serving = move |stream| serve(stream, Arc::clone(&serving));
        let listening = Listening::until(shared.life.clone(), listener, serving);
        Self { listening, shared }
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// As SIGKILL would: connections, sessions and running calls are gone; then a new server at the same address.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.shared.life.cancel();
        let book = self.shared.book.clone();
        *self = Self::start_at(self.shared.flavour, book, self.address()).await;
    }

    /// Closes the stream of this call, which runs on. Only a legacy server has such streams.
    pub(crate) fn cut(&self, token: &str) {
        self.shared.legacy.cut(token);
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // A client that went away is seen as the end of the connection.
    hyper_server::serve(stream, true, move |request| {
        handle(Arc::clone(&shared), request)
    })
    .await;
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return empty(400);
    };
    let message = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
    match shared.flavour {
        Flavour::Resumable | Flavour::Late | Flavour::Plain => {
            legacy::handle(&shared, &parts, &message)
        }
        Flavour::Modern => modern::handle(&shared, &parts, &message),
    }
}

/// What a call is asked to do. The tools differ only in the rules that the program has for them.
#[derive(Debug, Clone)]
struct Work {
    token: String,
    /// How long it takes.
    ms: u64,
    /// How many questions it asks, all at once.
    ask: usize,
    /// How often it tells of its progress meanwhile.
    steps: u32,
}

impl Work {
    fn of(params: &Value) -> Self {
        let arguments = &params["arguments"];
        Self {
            token: arguments["token"].as_str().unwrap_or("?").to_owned(),
            ms: arguments["ms"].as_u64().unwrap_or(0),
            ask: arguments["ask"]
                .as_u64()
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
            steps: arguments["steps"]
                .as_u64()
                .and_then(|n| n.try_into().ok())
                .unwrap_or(0),
        }
    }

    fn question(&self, place: usize) -> Value {
        json!({"mode": "form", "message": format!("{} {place}?", self.token), "requestedSchema": {
            "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
        }})
    }
}

/// What a call that went well says: who it was, and which answers it was given.
pub(crate) fn text_of(token: &str, answers: &[String]) -> String {
    format!("done {token} {}", answers.join(" "))
        .trim_end()
        .to_owned()
}

/// An answer to a question, in a word.
fn word_of(answer: &Value) -> String {
    let name = answer["content"]["name"].as_str();
    let action = || answer["action"].as_str();
    name.or_else(action).unwrap_or("nothing").to_owned()
}

fn tools() -> Value {
    let tools: Vec<Value> = ["work", "read", "plain"]
        .iter()
        .map(|name| {
            json!({"name": name, "inputSchema": {"type": "object"},
                   "annotations": {"readOnlyHint": *name == "read"}})
        })
        .collect();
    json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}

// --- responses ---

fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn answer(status: u16, message: &Value) -> Response<Body> {
    json(status, message.to_string())
}
