//! The legacy face: sessions, and calls that run on without their reader. The resumable flavour numbers its events and
//! keeps them, so that a stream can be read on from any of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use hyper::http::request::Parts;
use hyper::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Body, Flavour, Shared, Work, answer, empty, error, event_stream, result, text_of, tools,
    word_of,
};

const SESSION: &str = "mcp-session-id";

/// Everything that a legacy server keeps between requests.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Mutex<HashMap<String, Arc<Session>>>,
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    next_stream: AtomicU64,
}

#[derive(Debug, Default)]
struct Session {
    next_id: AtomicU64,
    /// Questions that wait for the client, by their id.
    asked: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    /// Calls under way, by the client's id as JSON.
    running: Mutex<HashMap<String, CancellationToken>>,
}

/// The events of one call.
#[derive(Debug)]
struct Stream {
    token: String,
    log: watch::Sender<Log>,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<String>,
    ended: bool,
    /// How often its readers were cut off.
    cuts: u32,
}

impl Sessions {
    pub(super) fn cut(&self, token: &str) {
        for stream in lock(&self.streams)
            .values()
            .filter(|stream| stream.token == token)
        {
            stream.log.send_modify(|log| log.cuts += 1);
        }
    }
}

impl Stream {
    fn say(&self, message: &Value) {
        self.log
            .send_modify(|log| log.events.push(message.to_string()));
    }
}

pub(super) fn handle(shared: &Arc<Shared>, parts: &Parts, message: &Value) -> Response<Body> {
    let sessions = &shared.legacy;
    if parts.method == Method::POST && message["method"] == "initialize" {
        return initialize(sessions, &message["id"]);
    }
    let name = parts
        .headers
        .get(SESSION)
        .and_then(|value| value.to_str().ok());
    let Some(session) = name.and_then(|name| lock(&sessions.open).get(name).cloned()) else {
        return answer(
            404,
            &error(&json!("server-error"), -32600, "Session not found"),
        );
    };
    match parts.method {
        Method::DELETE => {
            lock(&sessions.open).remove(name.unwrap_or_default());
            empty(200)
        }
        Method::GET => resume(shared, parts),
        _ => post(shared, &session, message),
    }
}

fn initialize(sessions: &Sessions, id: &Value) -> Response<Body> {
    let name = uuid::Uuid::new_v4().simple().to_string();
    lock(&sessions.open).insert(name.clone(), Arc::default());
    let said = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "counting", "version": "1"},
    });
    let mut response = answer(200, &result(id, &said));
    let name = name.parse().expect("a session id");
    response.headers_mut().insert(SESSION, name);
    response
}

fn post(shared: &Arc<Shared>, session: &Arc<Session>, message: &Value) -> Response<Body> {
    let (id, params) = (&message["id"], &message["params"]);
    let Some(method) = message["method"].as_str() else {
        let asked = id.as_u64().and_then(|id| lock(&session.asked).remove(&id));
        if let Some(asked) = asked {
            let _ = asked.send(message["result"].clone());
        }
        return empty(202);
    };
    if method == "notifications/cancelled" {
        let id = params["requestId"].to_string();
        if let Some(call) = lock(&session.running).get(&id) {
            call.cancel();
        }
    }
    if id.is_null() {
        return empty(202);
    }
    match method {
        "ping" => answer(200, &result(id, &json!({}))),
        "tools/list" => answer(200, &result(id, &tools())),
        "tools/call" => call(shared, session, params, id),
        _ => answer(200, &error(id, -32601, "Method not found")),
    }
}

/// Runs on when its reader goes away; only `notifications/cancelled` ends it early.
fn call(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    params: &Value,
    id: &Value,
) -> Response<Body> {
    let work = Work::of(params);
    let number = shared.legacy.next_stream.fetch_add(1, Ordering::Relaxed);
    let stream = Arc::new(Stream {
        token: work.token.clone(),
        log: watch::Sender::default(),
    });
    lock(&shared.legacy.streams).insert(number, Arc::clone(&stream));
    let cancelled = CancellationToken::new();
    lock(&session.running).insert(id.to_string(), cancelled.clone());
    shared.book.note(&work.token, |entry| entry.runs += 1);
    let reading = read(shared, number, &stream, 0);
    let (shared, session, id) = (Arc::clone(shared), Arc::clone(session), id.clone());
    tokio::spawn(async move {
        let life = shared.life.clone();
        let running = run(&shared, &session, &work, &stream);
        let ended = life
            .run_until_cancelled(cancelled.run_until_cancelled(running))
            .await;
        let said = match ended {
            // The server was killed: nothing is written down any more.
            None => return,
            Some(None) => {
                let now = Instant::now();
                shared
                    .book
                    .note(&work.token, |entry| entry.cancelled = Some(now));
                error(&id, 0, "Request cancelled")
            }
            Some(Some(answers)) => {
                shared.book.note(&work.token, |entry| entry.finished += 1);
                let text = text_of(&work.token, &answers);
                result(&id, &json!({"content": [{"type": "text", "text": text}]}))
            }
        };
        lock(&session.running).remove(&id.to_string());
        stream.say(&said);
        stream.log.send_modify(|log| log.ended = true);
        if shared.flavour == Flavour::Plain {
            lock(&shared.legacy.streams).remove(&number);
        }
    });
    reading
}

/// The answers that it was given.
async fn run(shared: &Shared, session: &Session, work: &Work, stream: &Stream) -> Vec<String> {
    let questions = (0..work.ask).map(|place| async move {
        let id = session.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&session.asked).insert(id, answer);
        let params = work.question(place);
        stream.say(&json!({
            "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params,
        }));
        let word = word_of(&answered.await.unwrap_or(Value::Null));
        shared
            .book
            .note(&work.token, |entry| entry.answers.push(word.clone()));
        word
    });
    if work.ask > 0 {
        shared.book.note(&work.token, |entry| entry.asked += 1);
    }
    let answers = join_all(questions).await;
    let step = Duration::from_millis(work.ms / u64::from(work.steps.max(1)));
    for progress in 1..=work.steps {
        stream.say(
            &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                "progressToken": "t", "progress": progress, "total": work.steps,
            }}),
        );
        tokio::time::sleep(step).await;
    }
    if work.steps == 0 {
        tokio::time::sleep(step).await;
    }
    answers
}

fn resume(shared: &Arc<Shared>, parts: &Parts) -> Response<Body> {
    let last = parts
        .headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    let place = last.and_then(|last| last.split_once('-'));
    let place = place.and_then(|(stream, event)| Some((stream.parse().ok()?, event.parse().ok()?)));
    let Some((number, event)): Option<(u64, usize)> = place else {
        return empty(405);
    };
    match lock(&shared.legacy.streams).get(&number) {
        Some(stream) => read(shared, number, stream, event),
        None => empty(404),
    }
}

/// The events behind the first `from`, as they come, until the end or until the reader is cut off.
fn read(shared: &Shared, number: u64, stream: &Stream, from: usize) -> Response<Body> {
    let primes = shared.flavour == Flavour::Resumable;
    let is_late = shared.flavour == Flavour::Late;
    let log = stream.log.subscribe();
    let cuts = log.borrow().cuts;
    let rest = stream::unfold((log, from), move |(mut log, place)| async move {
        let next = log.wait_for(|log| log.ended || log.cuts > cuts || log.events.len() > place);
        let event = {
            let log = next.await.ok()?;
            let cut = log.cuts > cuts;
            log.events.get(place).filter(|_| !cut)?.clone()
        };
        let id = if primes || (is_late && place > 0) {
            format!("id: {number}-{}\n", place + 1)
        } else {
            String::new()
        };
        Some((
            format!("{id}event: message\ndata: {event}\n\n"),
            (log, place + 1),
        ))
    });
    // The priming event: from here on a reader that is cut off can come back.
    let first = (primes && from == 0).then(|| format!("id: {number}-0\nretry: 200\ndata: \n\n"));
    event_stream(stream::iter(first).chain(rest))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
