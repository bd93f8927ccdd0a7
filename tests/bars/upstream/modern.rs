//! The modern face: stateless. A call lives in its response: who closes it cancels it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream;
use hyper::Response;
use hyper::http::request::Parts;
use serde_json::{Value, json};

use super::{
    Body, Shared, Work, answer, empty, error, event_stream, result, text_of, tools, word_of,
};

pub(super) fn handle(shared: &Arc<Shared>, parts: &Parts, message: &Value) -> Response<Body> {
    if parts.method != hyper::Method::POST {
        return empty(405);
    }
    let (id, params) = (&message["id"], &message["params"]);
    match message["method"].as_str().unwrap_or_default() {
        "server/discover" => answer(200, &result(id, &discovered())),
        "tools/list" => answer(200, &result(id, &tools())),
        "tools/call" => call(shared, id.clone(), params),
        _ => answer(404, &error(id, -32601, "Method not found")),
    }
}

fn discovered() -> Value {
    json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "counting", "version": "1"}},
    })
}

fn call(shared: &Arc<Shared>, id: Value, params: &Value) -> Response<Body> {
    let work = Work::of(params);
    let responses = &params["inputResponses"];
    if work.ask > 0 && !responses.is_object() {
        shared.book.note(&work.token, |entry| entry.asked += 1);
        return answer(200, &result(&id, &asks(&work)));
    }
    let answers: Vec<String> = (0..work.ask)
        .map(|place| word_of(&responses[key(place)]))
        .collect();
    shared.book.note(&work.token, |entry| {
        entry.runs += 1;
        entry.answers.extend(answers.iter().cloned());
    });
    let unfinished = Unfinished {
        shared: Arc::clone(shared),
        token: work.token.clone(),
        finished: false,
    };
    let run = async move {
        let mut unfinished = unfinished;
        tokio::time::sleep(Duration::from_millis(work.ms)).await;
        unfinished.finish();
        let text = text_of(&work.token, &answers);
        let content =
            json!({"resultType": "complete", "content": [{"type": "text", "text": text}]});
        format!("event: message\ndata: {}\n\n", result(&id, &content))
    };
    event_stream(stream::once(run))
}

fn asks(work: &Work) -> Value {
    let requests: serde_json::Map<String, Value> = (0..work.ask)
        .map(|place| {
            let request = json!({"method": "elicitation/create", "params": work.question(place)});
            (key(place), request)
        })
        .collect();
    json!({"resultType": "input_required", "inputRequests": requests, "requestState": work.token})
}

fn key(place: usize) -> String {
    format!("q{place}")
}

/// A call that runs; dropped before its end, its reader has closed the stream.
struct Unfinished {
    shared: Arc<Shared>,
    token: String,
    finished: bool,
}

impl Unfinished {
    fn finish(&mut self) {
        self.finished = true;
        self.shared
            .book
            .note(&self.token, |entry| entry.finished += 1);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A server that was killed was told nothing.
        if !self.finished && !self.shared.life.is_cancelled() {
            let now = Instant::now();
            self.shared
                .book
                .note(&self.token, |entry| entry.cancelled = Some(now));
        }
    }
}
