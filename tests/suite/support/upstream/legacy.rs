//! The legacy face: 2025-11-25 with sessions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::http::{self, Body, Said};
use super::super::session::SESSION;
use super::Shared;
use super::modern::{error, result};
use super::resumable::Streams;
use super::tools::{self, Call, End, Side};
use crate::support::Era;

/// What becomes of an `initialize`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Greeting {
    #[default]
    Answer,
    /// An error, with status 200.
    Refuse,
    /// The answer on a stream that stays open.
    AnswerAndStay,
    /// The answer on a stream of its own, as most servers give it.
    AnswerStreamed,
}

/// What a session remembers.
#[derive(Debug, Default)]
pub(crate) struct Session {
    initialized: AtomicBool,
    next_id: AtomicU64,
    /// Requests of this server that wait for the client.
    asked: Mutex<BTreeMap<String, oneshot::Sender<Value>>>,
    /// Where the server keeps its events.
    streams: Streams,
    /// Calls under way, by the client's id as JSON.
    running: Mutex<BTreeMap<String, CancellationToken>>,
}

impl Session {
    pub(super) fn cut(&self) {
        self.streams.cut();
    }

    pub(super) fn forget(&self) {
        self.streams.forget();
    }

    /// Asks on the call's own stream and waits for the answer.
    pub(super) async fn ask(&self, out: &mpsc::Sender<Said>, params: Value) -> Value {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.asked.lock().unwrap().insert(id.to_string(), answer);
        let request =
            json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params});
        let _ = out.send(Said::Note(request.to_string())).await;
        answered.await.unwrap_or(Value::Null)
    }
}

pub(super) async fn handle(shared: &Arc<Shared>, parts: &Parts, body: &Bytes) -> Response<Body> {
    let session = parts
        .headers
        .get(SESSION)
        .map(|value| value.to_str().unwrap().to_owned());
    let message: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    if parts.method == Method::POST && message["method"] == "initialize" {
        return initialize(shared, &message);
    }
    if parts.method == Method::POST && shared.sessionless.load(Ordering::Relaxed) {
        let session = Arc::new(Session::default());
        session.initialized.store(true, Ordering::Relaxed);
        return post(shared, &session, &message).await;
    }
    let Some(name) = session else {
        let refused = r#"{"code":-32600,"message":"Bad Request: Missing session ID"}"#;
        return http::json(400, error(&json!("server-error"), refused));
    };
    let Some(session) = shared.sessions.lock().unwrap().get(&name).cloned() else {
        if let Some(refusal) = shared.ways.refusal(&message) {
            return refusal;
        }
        let refused = r#"{"code":-32600,"message":"Session not found"}"#;
        return http::json(404, error(&json!("server-error"), refused));
    };
    if parts.method == Method::DELETE {
        shared.sessions.lock().unwrap().remove(&name);
        return http::empty(200);
    }
    if parts.method == Method::GET {
        let keeps_events = shared.keeps_events.load(Ordering::Relaxed);
        let last = parts.headers.get("last-event-id").filter(|_| keeps_events);
        return match last.map(|id| session.streams.resume(id.to_str().unwrap())) {
            None => news(shared),
            Some(Some(rest)) => rest,
            Some(None) => http::json(
                400,
                error(
                    &json!("server-error"),
                    r#"{"code":-32600,"message":"no such event"}"#,
                ),
            ),
        };
    }
    post(shared, &session, &message).await
}

fn initialize(shared: &Shared, message: &Value) -> Response<Body> {
    let greeting = *shared.greeting.lock().unwrap();
    if greeting == Greeting::Refuse {
        let refused = r#"{"code":-32603,"message":"not now"}"#;
        return http::json(200, error(&message["id"], refused));
    }
    let name = uuid::Uuid::new_v4().simple().to_string();
    shared
        .sessions
        .lock()
        .unwrap()
        .insert(name.clone(), Arc::default());
    let answer = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "tools": {"listChanged": true}, "logging": {}, "tasks": {"list": {}, "cancel": {}},
        },
        "serverInfo": {"name": "scripted", "version": "1"},
        "instructions": "scripted",
    });
    let answer = result(&message["id"], &answer.to_string());
    let mut response = if greeting == Greeting::Answer {
        http::json(200, answer)
    } else {
        let (out, said) = mpsc::channel(1);
        if greeting == Greeting::AnswerAndStay {
            tokio::spawn(async move { out.closed().await });
        }
        http::events(Some(Said::Answer(answer)), said)
    };
    if !shared.sessionless.load(Ordering::Relaxed) {
        response
            .headers_mut()
            .insert(SESSION, name.parse().unwrap());
    }
    response
}

/// The stream of what belongs to no call.
fn news(shared: &Shared) -> Response<Body> {
    let (out, said) = mpsc::channel(16);
    let mut news = shared.listen();
    tokio::spawn(async move {
        while let Some(Ok(method)) = tokio::select! {
            method = news.recv() => Some(method),
            () = out.closed() => None,
        } {
            let note = json!({"jsonrpc": "2.0", "method": method});
            let _ = out.send(Said::Note(note.to_string())).await;
        }
    });
    http::events(None, said)
}

async fn post(shared: &Arc<Shared>, session: &Arc<Session>, message: &Value) -> Response<Body> {
    let Some(method) = message["method"].as_str() else {
        return answered(shared, session, message);
    };
    let (id, params) = (&message["id"], &message["params"]);
    match method {
        "notifications/initialized" => session.initialized.store(true, Ordering::Relaxed),
        "notifications/cancelled" => {
            let running = session.running.lock().unwrap();
            if let Some(call) = running.get(&params["requestId"].to_string()) {
                call.cancel();
            }
        }
        _ => {}
    }
    if id.is_null() {
        return http::empty(202);
    }
    if !session.initialized.load(Ordering::Relaxed) {
        let refused = r#"{"code":-32602,"message":"not initialized"}"#;
        return http::json(200, error(id, refused));
    }
    match method {
        "ping" => http::json(200, result(id, "{}")),
        "tools/list" if shared.keeps_events.load(Ordering::Relaxed) => {
            let (out, said) = mpsc::channel(1);
            let list = tools::list(shared, Era::Legacy, params);
            let _ = out.try_send(Said::Answer(result(id, &list)));
            session.streams.open(said)
        }
        "tools/list" => http::json(200, result(id, &tools::list(shared, Era::Legacy, params))),
        "tools/call" if params["name"] == "only" && params["task"].is_object() => {
            let nonce = params["arguments"]["nonce"].as_str();
            shared.tally(nonce.unwrap_or("only"), |tally| tally.started += 1);
            let task = json!({"task": only(nonce.unwrap_or_default(), "working")});
            http::json(200, result(id, &task.to_string()))
        }
        "tasks/get" if only_nonce(params).is_some() => {
            let nonce = only_nonce(params).unwrap_or_default();
            let has_ended = nonce.is_empty() || shared.released.borrow().contains(nonce);
            let status = if has_ended { "completed" } else { "working" };
            http::json(200, result(id, &only(nonce, status).to_string()))
        }
        "tasks/result" if only_nonce(params).is_some() => {
            if let Some(nonce) = only_nonce(params).filter(|nonce| !nonce.is_empty()) {
                shared.released(nonce).await;
            }
            let text = r#"{"content":[{"type":"text","text":"theirs"}]}"#;
            http::json(200, result(id, text))
        }
        "tools/call" => call(shared, session, params, id.clone()).await,
        _ => http::json(
            200,
            error(
                id,
                r#"{"code":-32602,"message":"Invalid request parameters"}"#,
            ),
        ),
    }
}

/// The client's answer to a question.
fn answered(shared: &Shared, session: &Session, message: &Value) -> Response<Body> {
    if shared.refuses_answers.load(Ordering::Relaxed) {
        return http::empty(503);
    }
    let id = message["id"].to_string();
    if let Some(waits) = session.asked.lock().unwrap().remove(&id) {
        let _ = waits.send(message.get("result").cloned().unwrap_or_default());
    }
    http::empty(202)
}

/// Of which call of the tool that runs as a task only the task is. It runs until that is released;
/// without a nonce it has ended at once.
fn only_nonce(params: &Value) -> Option<&str> {
    params["taskId"].as_str()?.strip_prefix("only-")
}

fn only(nonce: &str, status: &str) -> Value {
    json!({
        "taskId": format!("only-{nonce}"), "status": status, "ttl": 60_000, "pollInterval": 10,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
    })
}

/// Runs on when its reader goes away; only `notifications/cancelled` ends it early.
async fn call(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    params: &Value,
    id: Value,
) -> Response<Body> {
    let call = Call::read(params, id, Side::Legacy(Arc::clone(session)));
    let (out, mut said) = mpsc::channel(16);
    let cancelled = CancellationToken::new();
    let key = call.id.to_string();
    let twice = session
        .running
        .lock()
        .unwrap()
        .insert(key.clone(), cancelled.clone());
    assert!(
        twice.is_none(),
        "two calls with the id {key} in flight on one session"
    );
    shared.tally(call.nonce(), |tally| tally.started += 1);
    let keeps_events = shared.keeps_events.load(Ordering::Relaxed);
    let tells_late = shared.tells_late.load(Ordering::Relaxed);
    let answers_json = shared.answers_json.load(Ordering::Relaxed);
    let streams = Arc::clone(session);
    let (shared, session) = (Arc::clone(shared), Arc::clone(session));
    let is_deaf = params["arguments"]["deaf"] == true;
    tokio::spawn(async move {
        let end = tokio::select! {
            end = call.run(&shared, &out) => Some(end),
            () = cancelled.cancelled(), if !is_deaf => None,
        };
        session.running.lock().unwrap().remove(&key);
        let text = match end {
            None => {
                shared.tally(call.nonce(), |tally| tally.cancelled += 1);
                error(&call.id, r#"{"code":0,"message":"Request cancelled"}"#)
            }
            Some(End::Result(text) | End::Asks(text)) => {
                shared.tally(call.nonce(), |tally| tally.finished += 1);
                result(&call.id, &text)
            }
            Some(End::Error(text)) => {
                shared.tally(call.nonce(), |tally| tally.finished += 1);
                error(&call.id, &text)
            }
            Some(End::Broken) => {
                shared.tally(call.nonce(), |tally| tally.finished += 1);
                return;
            }
        };
        let _ = out.send(Said::Answer(text)).await;
    });
    if answers_json {
        loop {
            match said.recv().await {
                Some(Said::Note(_)) => {}
                Some(Said::Answer(text)) => return http::json(200, text),
                None => return http::empty(500),
            }
        }
    }
    if keeps_events && tells_late {
        streams.streams.open_late(said)
    } else if keeps_events {
        streams.streams.open(said)
    } else {
        http::events(None, said)
    }
}
