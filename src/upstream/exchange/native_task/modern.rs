//! A modern server's own task (the Tasks extension), which the server made for a call that is a task of
//! raincheck's already. It is polled to its end, and its questions are put like those of a legacy server.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::{Object, Writer, quote, raw, set, string};
use crate::upstream::exchange::native_task::{
    BeginRequest, FAILURES_MAX, INTERVAL, INTERVAL_MAX, LOST, NativeAnswer, StatusMessage,
    interval_of,
};
use crate::upstream::exchange::{RequestTransport, Unsent, Untaken};
use crate::upstream::port::{
    Answer, CANCEL_PATIENCE, Control, Event, Exchange, Question, UpstreamError, UpstreamRequest,
};

/// How often raincheck tries to send a client's answer to the server.
const UPDATES_MAX: usize = 2;

/// Follows the task that a `CreateTaskResult` names; `None` if it is none.
pub(in crate::upstream) fn follow(
    begin: BeginRequest,
    call: &UpstreamRequest,
    created: &RawValue,
) -> Option<Exchange> {
    let created = Object::parse(created.get()).ok()?;
    if created.get_str("resultType").as_deref() != Some("task") {
        return None;
    }
    let requests = ModernTaskRequests {
        begin,
        call: call.clone(),
        id: created.get_str("taskId")?.as_ref().into(),
    };
    let task = ModernTask {
        requests: requests.clone(),
        interval: interval_of(&created, "pollIntervalMs").unwrap_or(INTERVAL),
        message: StatusMessage::default(),
        asked: HashSet::new(),
        ready: Vec::new(),
        failures: 0,
    };
    Some(super::super::begin(task, Arc::new(requests)))
}

/// Requests about one task.
#[derive(Clone)]
struct ModernTaskRequests {
    begin: BeginRequest,
    call: UpstreamRequest,
    id: Arc<str>,
}

impl ModernTaskRequests {
    /// A request about the task. It has the call's own `_meta`, so that the server sees a client that knows
    /// tasks.
    fn about(&self, method: &str, members: &[(&str, &str)]) -> Exchange {
        let mut params = Writer::object();
        params.str("taskId", &self.id);
        for (name, json) in members {
            params.raw(name, json);
        }
        let meta = Object::parse(&self.call.params).ok();
        let meta = meta.as_ref().and_then(|params| params.get("_meta"));
        let mut params = params.end();
        if let Some(meta) = meta {
            params = set(&params, "_meta", meta.get()).unwrap_or(params);
        }
        (self.begin)(UpstreamRequest {
            // `Mcp-Name` mirrors the id of the task in every request about one (tasks.md, Routing Headers).
            name: Some(Arc::clone(&self.id)),
            ..self.call.about_task(method, params)
        })
    }

    async fn ask(&self, method: &str, members: &[(&str, &str)]) -> NativeAnswer {
        NativeAnswer::to(self.about(method, members)).await
    }
}

#[async_trait]
impl Control for ModernTaskRequests {
    async fn answer(&self, id: &str, answer: Answer) -> Result<(), Failure> {
        // The protocol has no way to refuse a question but to decline.
        let response = match &answer {
            Answer::Result(result) => Arc::clone(result),
            Answer::Refused(_) => r#"{"action":"decline"}"#.into(),
        };
        let mut responses = Writer::object();
        let key = raw(id.to_owned()).ok();
        let key = key.as_deref().and_then(string).unwrap_or_default();
        responses.raw(&key, &response);
        let responses = responses.end();
        for _ in 0..UPDATES_MAX {
            match self
                .ask("tasks/update", &[("inputResponses", &responses)])
                .await
            {
                NativeAnswer::Result(_) => return Ok(()),
                NativeAnswer::Refused => break,
                // A server that has the answer already refuses it a second time.
                NativeAnswer::None => {}
            }
        }
        Err(LOST)
    }

    async fn cancel(&self) {
        let _ = tokio::time::timeout(CANCEL_PATIENCE, self.ask("tasks/cancel", &[])).await;
    }
}

struct ModernTask {
    requests: ModernTaskRequests,
    interval: Duration,
    message: StatusMessage,
    /// Keys are unique for the life of a task.
    asked: HashSet<String>,
    /// Events of the last poll that were not taken yet, the last one first.
    ready: Vec<Event>,
    failures: u32,
}

impl RequestTransport for ModernTask {
    type Open = ();

    async fn send(&mut self) -> Result<(), Untaken> {
        Ok(())
    }

    async fn next(&mut self, (): &mut ()) -> Result<Event, Unsent> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Ok(event);
            }
            // The answer that made the task has its state already, so the first poll comes after a pause, too.
            tokio::time::sleep(self.interval).await;
            match self.requests.ask("tasks/get", &[]).await {
                NativeAnswer::Result(result) => {
                    self.failures = 0;
                    self.read(&result);
                }
                NativeAnswer::Refused => return Ok(Event::Failed(LOST)),
                NativeAnswer::None => {
                    self.failures += 1;
                    self.interval = (self.interval * 2).min(INTERVAL_MAX);
                    if self.failures >= FAILURES_MAX {
                        // Nothing fetches the result any more, so the server need not go on.
                        self.requests.cancel().await;
                        return Ok(Event::Failed(LOST));
                    }
                }
            }
        }
    }

    fn end(&mut self, _open: Option<()>, _last: &Event) {}
}

impl ModernTask {
    fn read(&mut self, state: &RawValue) {
        let Ok(task) = Object::parse(state.get()) else {
            self.ready.push(Event::Failed(LOST));
            return;
        };
        self.interval = interval_of(&task, "pollIntervalMs").unwrap_or(self.interval);
        match task.get_str("status").as_deref() {
            Some("completed") => self.ready.push(match task.get("result") {
                Some(result) => Event::Result(result.to_owned()),
                None => Event::Failed(LOST),
            }),
            Some("failed") => self.ready.push(match task.get("error") {
                Some(error) => Event::Error(UpstreamError::in_message(error.to_owned())),
                None => Event::Failed(LOST),
            }),
            Some("working") => {}
            Some("input_required") => self.ask(&task),
            // The task was cancelled at the server, and not by raincheck.
            _ => self.ready.push(Event::Failed(LOST)),
        }
        // Pushed last, because `ready` is a stack and nothing is taken from it after the end.
        if let Some(progress) = self.message.progress(&task) {
            self.ready.push(Event::Progress(progress));
        }
    }

    fn ask(&mut self, task: &Object<'_>) {
        let requests = task.get_object("inputRequests").unwrap_or_default();
        for (key, request) in requests.iter() {
            let Ok(request) = Object::parse(request.get()) else {
                continue;
            };
            let Some(method) = request.get_str("method") else {
                continue;
            };
            // Each poll lists all questions that are open, and each of them is put once.
            if self.asked.insert(key.to_owned()) {
                self.ready.push(Event::Question(Question {
                    id: quote(key).into(),
                    method: method.as_ref().into(),
                    params: request.get("params").map(ToOwned::to_owned),
                }));
            }
        }
    }
}
