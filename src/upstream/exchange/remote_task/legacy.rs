//! A legacy server's own task (2025-11-25, Tasks): created, followed and fetched over one session. The result
//! is requested at once, because a server may answer late and asks its questions on that stream. The task's
//! state is polled as well: for status messages, and for servers that refuse to let a client wait for the
//! result.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::mcp::error::Failure;
use crate::mcp::json::{Object, Writer};
use crate::upstream::exchange::remote_task::driver::{RemoteTask, TaskRequests};
use crate::upstream::exchange::remote_task::{
    BeginRequest, CreatedTask, RemoteAnswer, RemoteEnd, TaskCheck, TaskCodec, TaskRequest,
    TaskState, check, interval_of, lost_after,
};
use crate::upstream::port::{Exchange, UpstreamRequest};
use crate::upstream::sessions::pinned;
use crate::upstream::sessions::session::{ServerSession, SessionHandover};

/// A call from its creation to its result. Nothing is sent before the events are polled.
/// `start`: begins the first request.
pub(in crate::upstream) fn begin(
    begin: BeginRequest,
    start: impl FnOnce(Arc<UpstreamRequest>) -> Exchange,
    mut call: Arc<UpstreamRequest>,
) -> Exchange {
    // On a client's own session, all of it is there.
    Arc::make_mut(&mut call).pin.get_or_insert_default();
    let creating = start(Arc::clone(&call));
    let requests = TaskRequests::new(LegacyTasks, begin, call);
    RemoteTask::to_be_created(requests, creating)
}

/// The data by which another process follows a task.
#[derive(Serialize, Deserialize)]
struct LegacyTaskPoint {
    legacy_task: Box<str>,
    session: SessionHandover,
    /// The capabilities that were declared for the client.
    capabilities: Arc<str>,
}

/// A task that another process follows from here on.
pub(in crate::upstream) struct AdoptedTask(LegacyTaskPoint);

impl AdoptedTask {
    /// Reads a resume point. `None`: it is none of a legacy server's task.
    pub(in crate::upstream) fn of(resume_point: &str) -> Option<Self> {
        serde_json::from_str(resume_point).ok().map(Self)
    }

    /// The session of the task, and what was declared on it.
    pub(in crate::upstream) fn session(&self) -> (&SessionHandover, &Arc<str>) {
        (&self.0.session, &self.0.capabilities)
    }

    /// The rest of the call, with what `call` has of its client, on the session that its pin holds.
    pub(in crate::upstream) fn follow(
        self,
        begin: BeginRequest,
        call: UpstreamRequest,
    ) -> Exchange {
        let created = CreatedTask {
            id: self.0.legacy_task.into(),
            interval: None,
        };
        let requests = TaskRequests::new(LegacyTasks, begin, call);
        RemoteTask::adopted(requests, created)
    }
}

#[derive(Clone, Copy)]
struct LegacyTasks;

impl TaskCodec for LegacyTasks {
    const FETCHES_EARLY: bool = true;

    fn created(&self, _: &UpstreamRequest, answer: &RawValue) -> Option<CreatedTask> {
        let answer = Object::parse(answer.get()).ok()?;
        let task = answer.get_object("task")?;
        Some(CreatedTask {
            id: task.get_str("taskId")?.as_ref().into(),
            interval: interval_of(&task, INTERVAL),
        })
    }

    fn about(
        &self,
        call: &UpstreamRequest,
        id: &str,
        ask: TaskRequest<'_>,
    ) -> Option<UpstreamRequest> {
        let mut params = Writer::object();
        params.str("taskId", id);
        Some(UpstreamRequest {
            native_task: false,
            ..call.about_task(ask.method(), params.end())
        })
    }

    fn read(&self, _: &str, answer: RemoteAnswer) -> TaskCheck {
        check(answer, |state| {
            let status = state.get_str("status").unwrap_or_default();
            let has_ended = matches!(&*status, "completed" | "failed" | "cancelled");
            TaskState {
                end: has_ended.then(|| RemoteEnd::ToFetch(RawValue::NULL.to_owned())),
                interval: interval_of(state, INTERVAL),
                ..TaskState::default()
            }
        })
    }

    fn lost(&self, _: &str, failures: u32, _: Duration) -> Option<Failure> {
        lost_after(failures)
    }

    fn moves_at_once(&self) -> bool {
        true
    }

    fn resume_point(&self, call: &UpstreamRequest, id: &str) -> Option<Box<str>> {
        let session = session(call)?.handover();
        let point = LegacyTaskPoint {
            legacy_task: id.into(),
            session: session.filter(|_| call.can_move())?,
            capabilities: Arc::clone(&call.capabilities),
        };
        serde_json::to_string(&point).ok().map(Into::into)
    }

    fn hold(&self, call: &UpstreamRequest) {
        if let Some(session) = session(call) {
            session.hold();
        }
    }

    fn leave(&self, call: &UpstreamRequest) {
        if let Some(session) = session(call) {
            session.leave();
        }
    }
}

/// The session of the call. `None`: it runs over a pipe.
fn session(call: &UpstreamRequest) -> Option<Arc<ServerSession>> {
    pinned::session_of(call.pin.as_ref()?)
}

/// The time between polls in a task of this era.
const INTERVAL: &str = "pollInterval";
