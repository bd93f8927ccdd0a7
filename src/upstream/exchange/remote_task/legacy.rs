//! A legacy server's own task (2025-11-25, Tasks): created, followed and fetched over one session. The result
//! is requested at once, because a server may answer late and asks its questions on that stream. The task's
//! state is polled as well: for status messages, and for servers that refuse to let a client wait for the
//! result.

use std::time::Duration;

use crate::mcp::json::{Object, Writer};
use crate::upstream::exchange::remote_task::driver::{RemoteTask, TaskRequests};
use crate::upstream::exchange::remote_task::{
    BeginRequest, CreatedTask, RemoteEnd, TaskCodec, TaskState, interval_of,
};
use crate::upstream::port::{Answer, Exchange, UpstreamRequest};

/// A call from its creation to its result. Nothing is sent before the events are polled.
pub(in crate::upstream) fn begin(begin: BeginRequest, mut call: UpstreamRequest) -> Exchange {
    // On a client's own session, all of it is there.
    call.pin.get_or_insert_default();
    let requests = TaskRequests::new(LegacyTasks, begin, call);
    RemoteTask::to_be_created(requests).begin()
}

#[derive(Clone, Copy)]
struct LegacyTasks;

impl TaskCodec for LegacyTasks {
    const FETCH: Option<&'static str> = Some("tasks/result");

    fn created(&self, answer: &Object<'_>) -> Option<CreatedTask> {
        let task = answer.get_object("task")?;
        Some(CreatedTask {
            id: task.get_str("taskId")?.as_ref().into(),
            interval: self.interval(&task),
        })
    }

    fn about(&self, call: &UpstreamRequest, id: &str, method: &str) -> UpstreamRequest {
        let mut params = Writer::object();
        params.str("taskId", id);
        UpstreamRequest {
            native_task: false,
            ..call.about_task(method, params.end())
        }
    }

    fn interval(&self, state: &Object<'_>) -> Option<Duration> {
        interval_of(state, "pollInterval")
    }

    fn state(&self, state: &Object<'_>) -> TaskState {
        let status = state.get_str("status").unwrap_or_default();
        let has_ended = matches!(&*status, "completed" | "failed" | "cancelled");
        TaskState {
            questions: Vec::new(),
            end: has_ended.then_some(RemoteEnd::ToFetch),
        }
    }

    fn update(&self, _: &UpstreamRequest, _: &str, _: &str, _: &Answer) -> Option<UpstreamRequest> {
        None
    }
}
