//! The modern face: 2026-07-28, stateless.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::http::request::Parts;
use hyper::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::http::{self, Body, Said};
use super::resumable::Streams;
use super::tools::{self, Call, End, Side};
use super::{Shared, Upstream, own, own_events};
use crate::support::Era;

const META: &str = "io.modelcontextprotocol/";

pub(super) async fn handle(shared: &Arc<Shared>, parts: &Parts, body: &Bytes) -> Response<Body> {
    if parts.method != Method::POST {
        return http::empty(405);
    }
    let Ok(message) = serde_json::from_slice::<Value>(body) else {
        return http::json(
            400,
            error(&Value::Null, r#"{"code":-32700,"message":"not JSON"}"#),
        );
    };
    let (id, params) = (message["id"].clone(), &message["params"]);
    let method = message["method"].as_str().unwrap_or_default();
    let makes_tasks = shared.own.lock().unwrap().is_some();
    if let Err(why) = headers_fit(parts, method, params, makes_tasks) {
        let wrong = json!({"code": -32020, "message": why}).to_string();
        let politely = shared.refuses_politely.load(Ordering::Relaxed);
        return http::json(if politely { 200 } else { 400 }, error(&id, &wrong));
    }
    if method.starts_with("tasks/")
        && let Some(answer) = own::answer(shared, &message)
    {
        return answer;
    }
    if shared.has_events.load(Ordering::Relaxed)
        && let Some(answer) = own_events::answer(method, params)
    {
        return http::json(200, result(&id, &answer));
    }
    match method {
        "server/discover" => http::json(200, result(&id, &discovered())),
        "tools/list" => http::json(200, result(&id, &tools::list(shared, Era::Modern, params))),
        "tools/call" => call(shared, params, id).await,
        "subscriptions/listen" => listen(shared, id, &params["notifications"]),
        _ => http::json(
            404,
            error(&id, r#"{"code":-32601,"message":"Method not found"}"#),
        ),
    }
}

/// Strict, so that every request that the proxy makes of its own is checked as well.
fn headers_fit(
    parts: &Parts,
    method: &str,
    params: &Value,
    makes_tasks: bool,
) -> Result<(), &'static str> {
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let version = params["_meta"][format!("{META}protocolVersion")].as_str();
    if version.is_none() || header("mcp-protocol-version") != version {
        return Err("MCP-Protocol-Version");
    }
    if header("mcp-method") != Some(method) {
        return Err("Mcp-Method");
    }
    if method != "tools/call" {
        return Ok(());
    }
    if header("mcp-name") != params["name"].as_str() {
        return Err("Mcp-Name");
    }
    let region = params["arguments"]["region"].as_str();
    if params["name"] == "with_header" && header("mcp-param-region") != region {
        return Err("Mcp-Param-Region");
    }
    let capabilities = &params["_meta"][format!("{META}clientCapabilities")];
    let tasks = capabilities["extensions"].get("io.modelcontextprotocol/tasks");
    if (tasks.is_some() && !makes_tasks) || params.get("task").is_some() {
        return Err("tasks must not reach this server");
    }
    Ok(())
}

fn discovered() -> String {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {
            "tools": {"listChanged": true},
            "tasks": {"list": {}},
            "extensions": {"com.example/kept": {"x": 1}, "io.modelcontextprotocol/tasks": {"y": 2}},
        },
        "instructions": "scripted",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
    })
    .to_string()
}

/// Answers as one body where nothing was said before, else as a stream. A response that its
/// reader closed is a call that nobody waits for.
async fn call(shared: &Arc<Shared>, params: &Value, id: Value) -> Response<Body> {
    let side = Side::Modern {
        responses: params["inputResponses"].clone(),
        state: params["requestState"].as_str().map(ToOwned::to_owned),
        knows_tasks: params["_meta"][format!("{META}clientCapabilities")]["extensions"]
            .get("io.modelcontextprotocol/tasks")
            .is_some(),
    };
    let call = Call::read(params, id, side);
    let (out, mut said) = mpsc::channel(16);
    shared.tally(call.nonce(), |tally| tally.started += 1);
    tokio::spawn(run(Arc::clone(shared), call, out));
    match said.recv().await {
        Some(Said::Answer(text)) => {
            // A result may be nested too deeply for this.
            let message = serde_json::from_str::<Value>(&text).unwrap_or_default();
            let code = message["error"]["code"].as_i64();
            let status = match code {
                Some(-32602) => 400,
                Some(-32601) => 404,
                _ => 200,
            };
            http::json(status, text)
        }
        first if shared.numbers_events.load(Ordering::Relaxed) => {
            let (out, all) = mpsc::channel(16);
            tokio::spawn(async move {
                let mut next = first;
                while let Some(said_next) = next {
                    let _ = out.send(said_next).await;
                    next = said.recv().await;
                }
            });
            Streams::default().open(all)
        }
        first => http::events(first, said),
    }
}

async fn run(shared: Arc<Shared>, call: Call, out: mpsc::Sender<Said>) {
    let end = tokio::select! {
        end = call.run(&shared, &out) => end,
        () = out.closed() => {
            shared.tally(call.nonce(), |tally| tally.cancelled += 1);
            return;
        }
    };
    let text = match end {
        End::Asks(text) => {
            shared.tally(call.nonce(), |tally| tally.asked += 1);
            result(&call.id, &text)
        }
        End::Result(text) => {
            shared.tally(call.nonce(), |tally| tally.finished += 1);
            result(&call.id, &text)
        }
        End::Error(text) => {
            shared.tally(call.nonce(), |tally| tally.finished += 1);
            error(&call.id, &text)
        }
        End::Broken => {
            shared.tally(call.nonce(), |tally| tally.finished += 1);
            return;
        }
    };
    let _ = out.send(Said::Answer(text)).await;
}

/// A subscription to this is acknowledged when it is released.
pub(crate) const LATE: &str = "test://late";

fn listen(shared: &Arc<Shared>, id: Value, filter: &Value) -> Response<Body> {
    let (out, said) = mpsc::channel(16);
    let mut news = shared.listen();
    let tools = filter["toolsListChanged"] == true;
    let uris = filter["resourceSubscriptions"].clone();
    let mut granted = json!({});
    if tools {
        granted["toolsListChanged"] = json!(true);
    }
    if uris.is_array() {
        granted["resourceSubscriptions"] = uris.clone();
    }
    let meta = json!({(format!("{META}subscriptionId")): id});
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let acknowledged = json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": meta, "notifications": granted},
        });
        if uris.as_array().into_iter().flatten().any(|uri| uri == LATE) {
            shared.released(LATE).await;
        }
        let _ = out.send(Said::Note(acknowledged.to_string())).await;
        while let Some(Ok(method)) = tokio::select! {
            method = news.recv() => Some(method),
            () = out.closed() => None,
        } {
            if tools && method == "notifications/tools/list_changed" {
                let note = json!({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta}});
                let _ = out.send(Said::Note(note.to_string())).await;
            }
            if method == "notifications/resources/updated" {
                for uri in uris.as_array().into_iter().flatten() {
                    let params = json!({"uri": uri, "_meta": meta});
                    let note = json!({"jsonrpc": "2.0", "method": method, "params": params});
                    let _ = out.send(Said::Note(note.to_string())).await;
                }
            }
        }
    });
    http::events(None, said)
}

pub(super) fn result(id: &Value, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{text}}}"#)
}

pub(super) fn error(id: &Value, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{text}}}"#)
}

impl Upstream {
    /// Gives the events of modern streams ids, although nothing of such a stream can be asked for again.
    pub(crate) fn number_events(&self) {
        self.shared.numbers_events.store(true, Ordering::Relaxed);
    }
}
