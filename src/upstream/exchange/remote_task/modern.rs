//! A modern server's own task (the Tasks extension), which the server made for a call that is a task of
//! raincheck's already. It is polled to its end, and its questions are put like those of a legacy server.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::{Object, Writer, quote, raw, string};
use crate::upstream::exchange::remote_task::driver::{RemoteTask, TaskRequests};
use crate::upstream::exchange::remote_task::{
    BeginRequest, CreatedTask, LOST, RemoteAnswer, RemoteEnd, TaskCheck, TaskCodec, TaskRequest,
    TaskState, check, interval_of, lost_after, with_meta,
};
use crate::upstream::port::{Answer, Event, Exchange, Question, UpstreamError, UpstreamRequest};
use crate::upstream::translate::own_params;

/// Follows the task that a `CreateTaskResult` names; `None` if it is none. `is_shared`: other processes reach the server, too.
pub(in crate::upstream) fn follow(
    begin: BeginRequest,
    call: &Arc<UpstreamRequest>,
    (created, is_shared): (&RawValue, bool),
) -> Option<Exchange> {
    let tasks = ModernTasks { is_shared };
    let created = tasks.created(call, created)?;
    let requests = TaskRequests::new(tasks, begin, Arc::clone(call));
    Some(RemoteTask::created(requests, created))
}

/// The data by which another process follows a task.
#[derive(Serialize, Deserialize)]
struct ModernTaskPoint {
    modern_task: Box<str>,
    /// The capabilities that were declared for the client.
    capabilities: Arc<str>,
}

/// A task that another process follows from here on.
pub(in crate::upstream) struct AdoptedTask(ModernTaskPoint);

impl AdoptedTask {
    /// Reads a resume point. `None`: it is none of a modern server's task.
    pub(in crate::upstream) fn of(resume_point: &str) -> Option<Self> {
        serde_json::from_str(resume_point).ok().map(Self)
    }

    /// The rest of the call, with what `call` has of its client.
    pub(in crate::upstream) fn follow(
        self,
        begin: BeginRequest,
        call: UpstreamRequest,
    ) -> Exchange {
        let Self(point) = self;
        let call = UpstreamRequest {
            params: own_params(&point.capabilities, &[]).into(),
            native_task: true,
            ..call.declaring(point.capabilities)
        };
        let created = CreatedTask {
            id: point.modern_task.into(),
            interval: None,
        };
        let requests = TaskRequests::new(ModernTasks { is_shared: true }, begin, call);
        RemoteTask::adopted(requests, created)
    }
}

#[derive(Clone, Copy)]
struct ModernTasks {
    /// Other processes reach the server, too.
    is_shared: bool,
}

impl TaskCodec for ModernTasks {
    fn created(&self, _: &UpstreamRequest, answer: &RawValue) -> Option<CreatedTask> {
        let answer = Object::parse(answer.get()).ok()?;
        if answer.get_str("resultType").as_deref() != Some("task") {
            return None;
        }
        Some(CreatedTask {
            id: answer.get_str("taskId")?.as_ref().into(),
            interval: interval_of(&answer, INTERVAL),
        })
    }

    fn about(
        &self,
        call: &UpstreamRequest,
        id: &str,
        ask: TaskRequest<'_>,
    ) -> Option<UpstreamRequest> {
        // The state of an ended task has its result.
        if matches!(ask, TaskRequest::Result(_)) {
            return None;
        }
        let mut params = Writer::object();
        params.str("taskId", id);
        Some(about(call, id, ask.method(), params.end()))
    }

    fn read(&self, _: &str, answer: RemoteAnswer) -> TaskCheck {
        check(answer, state_of)
    }

    fn lost(&self, _: &str, failures: u32, _: Duration) -> Option<Failure> {
        lost_after(failures)
    }

    fn moves_at_once(&self) -> bool {
        true
    }

    fn resume_point(&self, call: &UpstreamRequest, id: &str) -> Option<Box<str>> {
        let point = ModernTaskPoint {
            modern_task: id.into(),
            capabilities: Arc::clone(&call.capabilities),
        };
        let can_move = self.is_shared && call.can_move();
        let point = can_move.then_some(point)?;
        serde_json::to_string(&point).ok().map(Into::into)
    }

    fn update(
        &self,
        call: &UpstreamRequest,
        id: &str,
        question: &str,
        answer: &Answer,
    ) -> Option<UpstreamRequest> {
        // The protocol has no way to refuse a question but to decline.
        let response = match answer {
            Answer::Result(result) => result,
            Answer::Refused(_) => r#"{"action":"decline"}"#,
        };
        let key = raw(question.to_owned()).ok();
        let mut responses = Writer::object();
        responses.raw(
            &key.as_deref().and_then(string).unwrap_or_default(),
            response,
        );
        let mut params = Writer::object();
        params
            .str("taskId", id)
            .raw("inputResponses", &responses.end());
        Some(about(call, id, "tasks/update", params.end()))
    }
}

/// The time between polls in a task of this era.
const INTERVAL: &str = "pollIntervalMs";

fn state_of(state: &Object<'_>) -> TaskState {
    let mut questions = Vec::new();
    let end = match state.get_str("status").as_deref() {
        Some("working") => None,
        Some("input_required") => {
            questions = open_questions(state);
            None
        }
        Some("completed") => Some(state.get("result").map(|it| Event::Result(it.to_owned()))),
        Some("failed") => Some(
            state
                .get("error")
                .map(|error| Event::Error(UpstreamError::in_message(error.to_owned()))),
        ),
        // The task was cancelled at the server, and not by raincheck.
        _ => Some(None),
    };
    let end = end.map(|answer| RemoteEnd::Answer(answer.unwrap_or(Event::Failed(LOST))));
    TaskState {
        questions,
        end,
        interval: interval_of(state, INTERVAL),
        ..TaskState::default()
    }
}

/// A request about the task. It has the call's own `_meta`, so that the server sees a client that declares tasks.
fn about(call: &UpstreamRequest, id: &str, method: &str, params: String) -> UpstreamRequest {
    UpstreamRequest {
        // `Mcp-Name` mirrors the id of the task in every request about one (tasks.md, Routing Headers).
        name: Some(id.into()),
        ..call.about_task(method, with_meta(call, params))
    }
}

/// Returns the questions that are open. Each state lists all of them.
fn open_questions(state: &Object<'_>) -> Vec<Question> {
    let requests = state.get_object("inputRequests").unwrap_or_default();
    let questions = requests.iter().filter_map(|(key, request)| {
        let request = Object::parse(request.get()).ok()?;
        Some(Question {
            id: quote(key).into(),
            method: request.get_str("method")?.as_ref().into(),
            params: request.get("params").map(ToOwned::to_owned),
        })
    });
    questions.collect()
}
