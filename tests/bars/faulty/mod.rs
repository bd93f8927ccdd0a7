//! A server that misbehaves on the wire as the call says: bytes on a socket, no HTTP library that would mend them.
//!
//! Everything else that it is asked (sessions, tool lists, calls of no fault) it answers as it should.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::book::Book;

pub(crate) mod script;
pub(crate) mod table;

use crate::http_request::WireRequest;
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
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Faulty {
    /// `trap`: where its redirects lead.
    pub(crate) async fn start(book: Book, trap: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("the port that was bound");
        let shared = Arc::new(Shared {
            faults: table::all(),
            book,
            trap: format!("http://{trap}/mcp"),
            state: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving = accept(listener, Arc::clone(&shared), stop.clone());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(serving).await });
        Self {
            address,
            shared,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
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

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let (shared, stop) = (Arc::clone(&shared), stop.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(Box::pin(serve(stream, shared)))
                .await
        });
    }
}

/// One connection: one request after the other.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut unread = Vec::new();
    let mut spoiled_by: Option<String> = None;
    while let Some(incoming) = WireRequest::read(&mut stream, &mut unread).await {
        if let Some(token) = &spoiled_by {
            shared.book.note(token, |entry| entry.spoiled += 1);
            return;
        }
        let scene = shared.meet(&incoming);
        let mut player = Player {
            stream: &mut stream,
            unread: &mut unread,
            shared: &shared,
            scene: &scene,
            session: incoming.header("mcp-session-id").map(ToOwned::to_owned),
        };
        match player.play().await {
            Left::Open => {}
            Left::Spoiled => spoiled_by = Some(scene.token.clone()),
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
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, incoming: &WireRequest) -> Scene {
        let nobody = |acts| Scene {
            token: String::new(),
            acts,
        };
        match incoming.method.as_str() {
            "POST" => {}
            "GET" => return self.resume(incoming),
            "DELETE" => return nobody(vec![script::json(200, &[], "{}")]),
            _ => return nobody(vec![script::json(405, &[], "{}")]),
        }
        let message: Value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
        let id = message["id"].to_string();
        let result = |result: &Value| {
            let message = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
            nobody(vec![script::json(200, &[], &message.to_string())])
        };
        let taken = || nobody(vec![script::json(202, &[], "")]);
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
        let acts = if state.shut {
            vec![script::page(500, &[])]
        } else if state.busy {
            vec![script::page(429, &[("retry-after", "1")])]
        } else {
            state.sessions.insert(session.clone());
            let described = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                   "serverInfo": {"name": "faulty", "version": "1"}});
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{described}}}"#);
            vec![script::json(200, &[("mcp-session-id", &session)], &answer)]
        };
        Scene {
            token: String::new(),
            acts,
        }
    }

    fn call(&self, incoming: &WireRequest, id: String, params: &Value) -> Scene {
        let arguments = &params["arguments"];
        let token = arguments["token"].as_str().unwrap_or_default().to_owned();
        self.book.note(&token, |entry| entry.runs += 1);
        let nth = self.book.of(&token).runs;
        let asked = Asked {
            id: id.clone(),
            token: token.clone(),
            nth,
            trap: self.trap.clone(),
        };
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
        Scene { token, acts }
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
        let asked = Asked {
            id: id.unwrap_or_default(),
            token: token.to_owned(),
            nth: self.book.of(token).fetched,
            trap: self.trap.clone(),
        };
        Scene {
            token: token.to_owned(),
            acts: fault.map_or_else(
                || vec![script::page(405, &[])],
                |fault| (fault.get)(&asked, last),
            ),
        }
    }
}

/// How a connection was left.
enum Left {
    Open,
    /// Open, and of no further use.
    Spoiled,
    HungUp,
    Closed,
}

struct Player<'a> {
    stream: &'a mut TcpStream,
    unread: &'a mut Vec<u8>,
    shared: &'a Shared,
    scene: &'a Scene,
    session: Option<String>,
}

impl Player<'_> {
    async fn play(&mut self) -> Left {
        let mut left = Left::Open;
        for act in &self.scene.acts {
            let goes_on = match act {
                Act::Send(bytes) => self.send(bytes).await,
                Act::Times { bytes, times } => loop_of(*times, self, bytes).await,
                Act::Pause(pause) => self.listen_for(tokio::time::sleep(*pause)).await,
                Act::Hang => self.listen_for(std::future::pending()).await,
                Act::Endless { bytes, every } => loop {
                    if !self.send(bytes).await || !self.listen_for(tokio::time::sleep(*every)).await
                    {
                        break false;
                    }
                },
                Act::UntilAnswered(count) => {
                    let (shared, token) = (self.shared, self.scene.token.as_str());
                    let long = std::time::Duration::from_mins(1);
                    let answered =
                        (shared.book).until(token, long, |entry| entry.answers.len() >= *count);
                    self.listen_for(async {
                        let _ = answered.await;
                    })
                    .await
                }
                Act::LoseSession => {
                    if let Some(session) = &self.session {
                        self.shared.state().sessions.remove(session);
                    }
                    true
                }
                Act::Spoil => {
                    left = Left::Spoiled;
                    true
                }
                Act::Close => return Left::Closed,
                Act::Reset => {
                    let _ = self.stream.set_zero_linger();
                    return Left::Closed;
                }
            };
            if !goes_on {
                return Left::HungUp;
            }
        }
        left
    }

    async fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Does that unless the client hangs up before.
    async fn listen_for(&mut self, event: impl Future<Output = ()>) -> bool {
        let mut more = [0; 1024];
        tokio::pin!(event);
        loop {
            tokio::select! {
                () = &mut event => return true,
                read = self.stream.read(&mut more) => match read {
                    Ok(count @ 1..) => self.unread.extend_from_slice(&more[..count]),
                    Ok(_) | Err(_) => return false,
                },
            }
        }
    }
}

async fn loop_of(times: usize, player: &mut Player<'_>, bytes: &[u8]) -> bool {
    for _ in 0..times {
        if !player.send(bytes).await {
            return false;
        }
    }
    true
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
