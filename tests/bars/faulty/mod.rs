//! A server that misbehaves on the wire as the call says: bytes on a socket, no HTTP library that would mend them.
//!
//! Everything else that it is asked (sessions, tool lists, calls of no fault) it answers as it should.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::book::Book;

pub(crate) mod script;
pub(crate) mod table;

use crate::http_request::WireRequest;
use crate::scripted::{Connection, Left, Listening};
use script::{Act, Asked};
use table::Fault;

#[derive(Debug)]
struct Shared {
    faults: Vec<Fault>,
    book: Book,
    trap: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashSet<String>,
    opened: u64,
    /// Whose request an id is.
    calls: HashMap<String, String>,
    /// No session is opened any more.
    shut: bool,
    /// It is too busy to open one.
    busy: bool,
}

/// A running server. Gone when dropped.
#[derive(Debug)]
pub(crate) struct Faulty {
    listening: Listening,
    shared: Arc<Shared>,
}

impl Faulty {
    /// `trap`: where its redirects lead.
    pub(crate) async fn start(book: Book, trap: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            faults: table::all(),
            book,
            trap: format!("http://{trap}/mcp"),
            state: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        let serving = move |stream| serve(stream, Arc::clone(&serving));
        let listening = Listening::start(serving).await;
        Self { listening, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url()
    }

    /// From here on it opens no session.
    pub(crate) fn shut(&self) {
        self.shared.state().shut = true;
    }

    /// Whether it is too busy to open one.
    pub(crate) fn be_busy(&self, busy: bool) {
        self.shared.state().busy = busy;
    }
}

/// One connection: one request after the other.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut connection = Connection::new(stream);
    let mut spoiled_by: Option<String> = None;
    while let Some(incoming) = connection.next().await {
        if let Some(token) = &spoiled_by {
            shared.book.note(token, |entry| entry.spoiled += 1);
            return;
        }
        let scene = shared.meet(&incoming);
        match connection.play(scene.acts).await {
            Left::Open => spoiled_by = scene.spoils.then_some(scene.token),
            Left::HungUp => {
                let now = Instant::now();
                let gone = |entry: &mut super::book::Entry| entry.hung_up = Some(now);
                shared.book.note(&scene.token, gone);
                return;
            }
            Left::Closed => return,
        }
    }
}

/// What is done to one request, and for whom.
struct Scene {
    token: String,
    acts: Vec<Act>,
    /// See [`Asked::spoils`].
    spoils: bool,
}

impl Scene {
    /// Of a request that belongs to no call.
    fn of_nobody(act: Act) -> Self {
        Self {
            token: String::new(),
            acts: vec![act],
            spoils: false,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, incoming: &WireRequest) -> Scene {
        match incoming.method.as_str() {
            "POST" => {}
            "GET" => return self.resume(incoming),
            "DELETE" => return Scene::of_nobody(script::json(200, &[], "{}")),
            _ => return Scene::of_nobody(script::json(405, &[], "{}")),
        }
        let message = incoming.json();
        let id = message["id"].to_string();
        let result = |result: &Value| {
            let message = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            Scene::of_nobody(script::json(200, &[], &message.to_string()))
        };
        let taken = || Scene::of_nobody(script::json(202, &[], ""));
        match message["method"].as_str() {
            Some("initialize") => self.open(&id),
            Some("server/discover") => result(&discovered()),
            Some("tools/list") => result(&tools()),
            Some("tools/call") => self.call(incoming, id, &message["params"]),
            Some("notifications/cancelled") => {
                let id = message["params"]["requestId"].to_string();
                let token = self.state().calls.get(&id).cloned();
                let now = Instant::now();
                let told = |entry: &mut super::book::Entry| entry.cancelled = Some(now);
                self.book.note(&token.unwrap_or_default(), told);
                taken()
            }
            Some(_) if message["id"].is_null() => taken(),
            Some(_) => result(&json!({})),
            None => {
                // An answer to a question, whose id says which.
                let id = message["id"].as_str().unwrap_or_default();
                let (token, method) = id.split_once('/').unwrap_or((id, ""));
                let word = match message["error"]["code"].as_i64() {
                    Some(code) => format!("{method} {code}"),
                    None => format!("{method} {}", message["result"]),
                };
                self.book.note(token, |entry| entry.answers.push(word));
                taken()
            }
        }
    }

    fn open(&self, id: &str) -> Scene {
        let mut state = self.state();
        state.opened += 1;
        let session = format!("session-{}", state.opened);
        Scene::of_nobody(if state.shut {
            script::page(500, &[])
        } else if state.busy {
            script::page(429, &[("retry-after", "1")])
        } else {
            state.sessions.insert(session.clone());
            let described = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "faulty", "version": "1"}});
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{described}}}"#);
            script::json(200, &[("mcp-session-id", &session)], &answer)
        })
    }

    fn call(&self, incoming: &WireRequest, id: String, params: &Value) -> Scene {
        let arguments = &params["arguments"];
        let token = arguments["token"].as_str().unwrap_or_default().to_owned();
        self.book.note(&token, |entry| entry.runs += 1);
        let nth = self.book.of(&token).runs;
        let asked = self.asked(id.clone(), &token, nth);
        let mut state = self.state();
        state.calls.insert(id, token.clone());
        let session = incoming.header("mcp-session-id");
        let is_lost = session.is_some_and(|session| !state.sessions.contains(session));
        drop(state);
        let acts = if is_lost {
            vec![script::page(404, &[])]
        } else {
            match self.fault(arguments) {
                Some(fault) => (fault.post)(&asked),
                None => asked.good(),
            }
        };
        if asked.loses_session.get()
            && let Some(session) = session
        {
            self.state().sessions.remove(session);
        }
        Scene {
            token,
            acts,
            spoils: asked.spoils.get(),
        }
    }

    fn asked(&self, id: String, token: &str, nth: u32) -> Asked {
        Asked {
            id,
            token: token.to_owned(),
            nth,
            trap: self.trap.clone(),
            book: self.book.clone(),
            loses_session: Cell::default(),
            spoils: Cell::default(),
        }
    }

    fn fault(&self, arguments: &Value) -> Option<&Fault> {
        let name = arguments["fault"].as_str()?;
        self.faults.iter().find(|fault| fault.name == name)
    }

    /// A client resumes a stream. The id of the event says which stream.
    fn resume(&self, incoming: &WireRequest) -> Scene {
        let last = incoming.header("last-event-id").unwrap_or_default();
        let (token, _) = last.split_once('/').unwrap_or(("", ""));
        self.book.note(token, |entry| entry.fetched += 1);
        let id = {
            let state = self.state();
            let mut calls = state.calls.iter();
            calls
                .find(|(_, whose)| *whose == token)
                .map(|(id, _)| id.clone())
        };
        let fault = token.split_once('.').map(|(fault, _)| fault);
        let fault = fault.and_then(|name| self.faults.iter().find(|fault| fault.name == name));
        let nth = self.book.of(token).fetched;
        let asked = self.asked(id.unwrap_or_default(), token, nth);
        Scene {
            token: token.to_owned(),
            acts: fault.map_or_else(
                || vec![script::page(405, &[])],
                |fault| (fault.get)(&asked, last),
            ),
            spoils: false,
        }
    }
}

fn discovered() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0,
           "cacheScope": "private", "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "faulty", "version": "1"}}})
}

fn tools() -> Value {
    let tools: Vec<Value> = ["work", "read", "brief", "plain"]
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect();
    json!({"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
}
