//! A job that one tool of the server starts, and others report on ([`crate::jobs`]): started, checked, fetched and
//! cancelled by calls of those tools. Where the job lives in the server's backend, any replica can follow it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::{info, warn};

use crate::base::backoff::spread;
use crate::jobs::arguments::HelperUse;
use crate::jobs::document::{Document, as_text};
use crate::jobs::job_call::JobCall;
use crate::jobs::reading::{JobHandle, StartAnswer, marked};
use crate::jobs::shared::SharedJobCalls;
use crate::jobs::words::Meaning;
use crate::jobs::{JobResult, Lives};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;
use crate::mcp::result::{ResultType, is_tool_error, result_type};
use crate::mcp::version::Era;
use crate::upstream::exchange::remote_task::driver::{RemoteTask, TaskRequests};
use crate::upstream::exchange::remote_task::status_message::ShownProgress;
use crate::upstream::exchange::remote_task::{
    BeginRequest, CreatedTask, RemoteAnswer, RemoteEnd, TaskCheck, TaskCodec, TaskRequest,
    TaskState, is_unauthorized, with_meta,
};
use crate::upstream::pin::Pin;
use crate::upstream::port::{Event, Exchange, Keep, UpstreamRequest};
use crate::upstream::translate::own_params;

/// A job that the server does not know is looked for again before it counts as gone: it may not be listed yet.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// The time in which a cancel tool is called again. Shorter than [`CANCELLING`](crate::upstream::CANCELLING).
const CANCEL_AGAIN: Duration = Duration::from_secs(25);

/// The time after the end of a job in which an error of the result tool may be temporary.
const FETCH_AGAIN: Duration = Duration::from_mins(1);

/// A call from the start of its job to the job's end. Nothing is sent before the events are polled. `start`: begins the first
/// request.
pub(in crate::upstream) fn begin(
    begin: BeginRequest,
    start: impl FnOnce(Arc<UpstreamRequest>) -> Exchange,
    mut call: Arc<UpstreamRequest>,
    job: Arc<JobCall>,
    era: Era,
) -> Exchange {
    if job.rule.lives != Lives::Backend {
        Arc::make_mut(&mut call).pin.get_or_insert_default();
    }
    let creating = start(Arc::new(UpstreamRequest {
        params: start_params(&job, &call),
        // The exchange of the start itself is an ordinary one.
        job: None,
        // A task of the server's own would be followed in its place.
        native_task: false,
        ..UpstreamRequest::clone(&call)
    }));
    let requests = TaskRequests::new(JobTools { job, era }, begin, call);
    RemoteTask::to_be_created(requests, creating)
}

/// Returns the params of the start, with what the rule adds. They are made again for the answer, so that a job does not keep them
/// beside those of its call.
fn start_params(job: &JobCall, call: &UpstreamRequest) -> Arc<str> {
    let params = job.start_params(&call.params);
    params.map_or_else(|| Arc::clone(&call.params), Arc::from)
}

/// The data by which another process follows a job.
#[derive(Serialize, Deserialize)]
struct JobPoint {
    job: Arc<JobCall>,
    handle: Box<str>,
    is_modern: bool,
}

/// A job that another process follows from here on.
pub(in crate::upstream) struct AdoptedJob(JobPoint);

impl AdoptedJob {
    /// Reads a resume point. `None`: it is none of a job. `shared`: the rules of other jobs.
    pub(in crate::upstream) fn of(resume_point: &str, shared: &SharedJobCalls) -> Option<Self> {
        let point: JobPoint = serde_json::from_str(resume_point).ok()?;
        Some(Self(JobPoint {
            job: shared.share(point.job),
            ..point
        }))
    }

    pub(in crate::upstream) fn era(&self) -> Era {
        if self.0.is_modern {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// The rest of the call, with what `call` has of its client.
    pub(in crate::upstream) fn follow(
        self,
        begin: BeginRequest,
        call: UpstreamRequest,
    ) -> Exchange {
        let era = self.era();
        let JobPoint { job, handle, .. } = self.0;
        // Where there is no client, the requests are raincheck's own.
        let params = match era {
            Era::Modern => own_params("{}", &[]),
            Era::Legacy => "{}".to_owned(),
        };
        let call = UpstreamRequest {
            params: params.into(),
            ..call
        };
        let created = CreatedTask {
            interval: Some(job.rule.poll.first),
            id: handle.into(),
        };
        let requests = TaskRequests::new(JobTools { job, era }, begin, call);
        RemoteTask::adopted(requests, created)
    }
}

/// The id of a task in the driver is the JSON of a [`JobHandle`].
struct JobTools {
    job: Arc<JobCall>,
    era: Era,
}

impl JobTools {
    /// Returns the end of a job, as an answer to the check that found it.
    fn end(&self, handle: &JobHandle, means: Meaning, answer: Box<RawValue>) -> RemoteEnd {
        if means == Meaning::Done
            && let JobResult::Tool(helper) = &self.job.rule.result
        {
            let document = Document::of(&answer);
            let found = self
                .job
                .helper_params(HelperUse::Result, handle, document.as_ref());
            if found.is_some() {
                return RemoteEnd::ToFetch(answer);
            }
            warn!(
                tool = &*helper.tool,
                "the last status lacks what [[jobs]] wants of it: it is the result itself"
            );
        }
        let id = handle.id.to_string();
        RemoteEnd::Answer(Event::Result(self.job.rule.result_of(means, &answer, &id)))
    }
}

impl TaskCodec for JobTools {
    /// Nothing else names the job.
    const KEEP: Keep = Keep::AtOnce;

    /// The job may go on well, and its id is in the message.
    const CANCELS_LOST: bool = false;

    /// A start may take long, and without its answer there is nothing to cancel.
    const CREATE_PATIENCE: Duration = Duration::from_secs(10);

    fn created(&self, call: &UpstreamRequest, answer: &RawValue) -> Option<CreatedTask> {
        // A modern server asks before it starts the job.
        if result_type(answer) == Ok(ResultType::InputRequired) {
            return None;
        }
        let tool = call.name.as_deref().unwrap_or_default();
        match self
            .job
            .start_answer(answer, &start_params(&self.job, call))
        {
            StartAnswer::Begun(mut handle) => {
                // A modern server over HTTP has no sessions, and then there is nothing to hold.
                handle.is_pinned = self.job.rule.lives != Lives::Backend && has_pin(call);
                info!(tool, job = %handle.id, "a job began");
                Some(CreatedTask {
                    id: serde_json::to_string(&handle).ok()?.into(),
                    interval: Some(self.job.rule.poll.first),
                })
            }
            StartAnswer::Answer => None,
            StartAnswer::NoId => {
                warn!(
                    tool,
                    "the answer has no id of a job where [[jobs]] looks for it: it is passed on as the result"
                );
                None
            }
        }
    }

    fn about(
        &self,
        call: &UpstreamRequest,
        id: &str,
        ask: TaskRequest<'_>,
    ) -> Option<UpstreamRequest> {
        let handle: JobHandle = serde_json::from_str(id).ok()?;
        // Another process would answer that it knows no such job, or about another one.
        if handle.is_pinned && !has_pin(call) {
            return None;
        }
        let (of, status) = match ask {
            TaskRequest::State => (HelperUse::Status, None),
            TaskRequest::Cancel => (HelperUse::Cancel, None),
            // Nothing is fetched before the job has ended.
            TaskRequest::Result(ended) => (HelperUse::Result, Some(Document::of(ended?)?)),
        };
        let (helper, params) = self.job.helper_params(of, &handle, status.as_ref())?;
        let mut request = call.about_task("tools/call", with_meta(call, params));
        request.name = Some(Arc::clone(&helper.tool));
        request.native_task = false;
        if self.job.rule.lives == Lives::Backend {
            request.pin = None;
        }
        Some(request)
    }

    fn read(&self, id: &str, answer: RemoteAnswer) -> TaskCheck {
        let rule = &self.job.rule;
        let Ok(handle) = serde_json::from_str::<JobHandle>(id) else {
            return TaskCheck::Refused;
        };
        if let RemoteAnswer::Error(error) = &answer
            && is_unauthorized(error)
        {
            return TaskCheck::Unauthorized;
        }
        // Conditions may be about the words of an error, too.
        let (answer, document) = match answer {
            RemoteAnswer::Result(answer) => {
                let document = Document::of(&answer);
                (Some(answer), document)
            }
            RemoteAnswer::Error(error) => {
                let document = Document::of_error(&error.error);
                (document.to_result(), Some(document))
            }
            RemoteAnswer::None => (None, None),
        };
        let (Some(answer), Some(document)) = (answer, document) else {
            return TaskCheck::Failed;
        };
        let read = rule.read(&document);
        let end = match read.meaning {
            Some(Meaning::Retry) => return TaskCheck::Failed,
            Some(Meaning::Gone) => return TaskCheck::Gone,
            Some(means @ (Meaning::Done | Meaning::Failed | Meaning::Cancelled)) => {
                Some(self.end(&handle, means, answer))
            }
            Some(Meaning::Working | Meaning::Input) | None => None,
        };
        TaskCheck::State(TaskState {
            shown: ShownProgress::of(read.progress),
            end,
            interval: read.poll,
            unknown: read.unknown,
            ..TaskState::default()
        })
    }

    fn patience(&self) -> Duration {
        // Some status tools wait themselves until there is news.
        self.job.rule.poll.lost_after / 2
    }

    fn cancel_patience(&self) -> Duration {
        // Without the cancel the job would run on although its client has left.
        CANCEL_AGAIN
    }

    fn pause(&self, last: Duration, has_failed: bool) -> Duration {
        let next = if has_failed { last * 2 } else { last * 3 / 2 };
        let mut random = [0; 1];
        // Without randomness the jobs of a restart are all checked in the same moments.
        let _ = getrandom::fill(&mut random);
        spread(next.min(self.job.rule.poll.max), random[0])
    }

    fn lost(&self, id: &str, failures: u32, since: Duration) -> Option<Failure> {
        // The server may have asked for a long pause before the check that failed.
        (failures > 1 && since >= self.job.rule.poll.lost_after).then(|| lost(id))
    }

    fn refused(&self, id: &str) -> Failure {
        lost(id)
    }

    fn is_final(&self, answer: &Event) -> bool {
        matches!(answer, Event::Result(result) if !is_tool_error(result.get()))
    }

    fn unfetched(&self, id: &str, since: Duration, is_refused: bool) -> Option<Failure> {
        let patience = if is_refused {
            FETCH_AGAIN
        } else {
            Duration::MAX
        };
        (since >= patience.min(self.job.rule.poll.lost_after)).then(|| lost(id))
    }

    fn gone(&self, id: &str, since: Duration) -> Option<Failure> {
        (since >= GONE_AFTER).then(|| lost(id))
    }

    fn result(&self, id: &str, fetched: Box<RawValue>) -> Box<RawValue> {
        let id = id_of(id).to_string();
        marked(&fetched, &id, Meaning::Done)
    }

    fn job(&self, id: &str) -> Option<Box<str>> {
        Some(as_text(&id_of(id)).into())
    }

    fn moves_at_once(&self) -> bool {
        true
    }

    fn resume_point(&self, call: &UpstreamRequest, id: &str) -> Option<Box<str>> {
        // The job of a process or a session is found only there.
        if self.job.rule.lives != Lives::Backend || !call.can_move() {
            return None;
        }
        let point = JobPoint {
            job: Arc::clone(&self.job),
            handle: id.into(),
            is_modern: self.era == Era::Modern,
        };
        serde_json::to_string(&point)
            .ok()
            .map(String::into_boxed_str)
    }
}

/// Returns `true` if the process or the session is there in which the call began.
fn has_pin(call: &UpstreamRequest) -> bool {
    call.pin.as_ref().is_some_and(Pin::is_open)
}

fn id_of(handle: &str) -> Value {
    let handle = serde_json::from_str::<JobHandle>(handle).ok();
    handle.map_or(Value::Null, |handle| handle.id)
}

/// The failure of a call whose job cannot be followed any more.
fn lost(handle: &str) -> Failure {
    let id = as_text(&id_of(handle)).into();
    Failure::new(Reason::JobLost, SideEffect::Unknown).with_detail(FailureDetail::Job(id))
}
