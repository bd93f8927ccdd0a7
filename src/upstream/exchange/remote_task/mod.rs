//! A call that the server runs as a task of its own, followed to its end. For the client it is a call like any
//! other. The [`driver`] creates, checks, fetches and cancels; a [`TaskCodec`] has the words of one kind of server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::StatusCode;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, code};
use crate::mcp::json::{Object, set};
use crate::mcp::result;
use crate::upstream::exchange::remote_task::status_message::ShownProgress;
use crate::upstream::failures::RESET;
use crate::upstream::port::{
    Answer, CANCEL_PATIENCE, Event, Exchange, Keep, Question, UpstreamError, UpstreamRequest,
};

mod driver;
mod followed;
pub(in crate::upstream) mod job;
pub(in crate::upstream) mod legacy;
pub(in crate::upstream) mod modern;
mod status_message;

/// Polls in a row that may fail before a task is given up.
const FAILURES_MAX: u32 = 5;

/// The bounds of the time between polls that a server asks for.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The time that a server has to answer about a task of MCP's own.
const ASK_PATIENCE: Duration = Duration::from_secs(10);

/// Begins one request at the server.
pub(in crate::upstream) type BeginRequest =
    Arc<dyn Fn(Arc<UpstreamRequest>) -> Exchange + Send + Sync>;

/// It cannot be found out how the task ended.
const LOST: Failure = RESET;

/// The words in which one kind of server speaks of its tasks.
trait TaskCodec: Send + Sync + 'static {
    /// The result is asked for before the task has ended, because a server may answer late.
    const FETCHES_EARLY: bool = false;

    /// When the data by which another process follows the task is kept.
    const KEEP: Keep = Keep::Soon;

    /// A task of which nothing is known any more is cancelled.
    const CANCELS_LOST: bool = true;

    /// The time that a cancel waits for the task that the server may be making.
    const CREATE_PATIENCE: Duration = Duration::from_secs(1);

    /// The task that the answer to the call names, if it names one. `call`: the request that began it.
    fn created(&self, call: &UpstreamRequest, answer: &RawValue) -> Option<CreatedTask>;

    /// A request about a task of that id, for the client of the call. `None`: the server has no such request.
    fn about(
        &self,
        call: &UpstreamRequest,
        id: &str,
        ask: TaskRequest<'_>,
    ) -> Option<UpstreamRequest>;

    /// Reads the answer to the question for the state of a task.
    fn read(&self, id: &str, answer: RemoteAnswer) -> TaskCheck;

    /// The time that the server has to answer about a task.
    fn patience(&self) -> Duration {
        ASK_PATIENCE
    }

    /// The time in which a cancel is sent again where the server does not take it.
    fn cancel_patience(&self) -> Duration {
        CANCEL_PATIENCE
    }

    /// The time until the next poll, if the server asks for none and the last poll failed or not.
    fn pause(&self, last: Duration, has_failed: bool) -> Duration {
        if has_failed {
            (last * 2).min(INTERVAL_MAX)
        } else {
            last
        }
    }

    /// Returns the end of a task of which nothing is known, after so many polls that failed and the time since the last good
    /// one.
    fn lost(&self, id: &str, failures: u32, since: Duration) -> Option<Failure>;

    /// Returns the end of a task that the server refuses to report on.
    fn refused(&self, _id: &str) -> Failure {
        LOST
    }

    /// Returns `true` if an answer to the request for the result of an ended task is the last one. Otherwise it is asked for again.
    fn is_final(&self, _answer: &Event) -> bool {
        true
    }

    /// Returns the end of a task that ended so long ago and whose result cannot be fetched. `is_refused`: an answer came that was
    /// not the last one.
    fn unfetched(&self, _id: &str, _since: Duration, _is_refused: bool) -> Option<Failure> {
        None
    }

    /// Returns the end of a task that the server does not know, and did not know so long ago either.
    fn gone(&self, _id: &str, _since: Duration) -> Option<Failure> {
        None
    }

    /// The result for the client, of what the request for the result was answered with.
    fn result(&self, _id: &str, fetched: Box<RawValue>) -> Box<RawValue> {
        fetched
    }

    /// The request that answers a question of the task. `None`: the answer goes to the request on which the server
    /// asked.
    fn update(
        &self,
        _call: &UpstreamRequest,
        _id: &str,
        _question: &str,
        _answer: &Answer,
    ) -> Option<UpstreamRequest> {
        None
    }

    /// The id of the job that the task is, for operators.
    fn job(&self, _id: &str) -> Option<Box<str>> {
        None
    }

    /// Returns `true` if another process follows the task as well as this one does, if one can.
    fn moves_at_once(&self) -> bool {
        false
    }

    /// The data by which another process follows the task. `None`: no other process can.
    fn resume_point(&self, call: &UpstreamRequest, id: &str) -> Option<Box<str>>;

    /// Takes what the task runs on over from another process, for the task of this call.
    fn hold(&self, _call: &UpstreamRequest) {}

    /// Leaves it to another process.
    fn leave(&self, _call: &UpstreamRequest) {}
}

/// A request about a task.
#[derive(Debug, Clone, Copy)]
enum TaskRequest<'s> {
    State,
    /// For the result. With the state of a task that has ended, if it has.
    Result(Option<&'s RawValue>),
    Cancel,
}

impl TaskRequest<'_> {
    /// The method of MCP's own tasks.
    fn method(self) -> &'static str {
        match self {
            Self::State => "tasks/get",
            Self::Result(_) => "tasks/result",
            Self::Cancel => "tasks/cancel",
        }
    }
}

/// A task that the server has made.
struct CreatedTask {
    id: Arc<str>,
    interval: Option<Duration>,
}

/// The answer of a poll.
enum TaskCheck {
    State(TaskState),
    /// The server has no such task, or does not support tasks.
    Refused,
    /// The server does not know the job now.
    Gone,
    /// The server does not accept the credentials of the call any more.
    Unauthorized,
    /// The poll failed, and the next one may not.
    Failed,
}

impl TaskCheck {
    /// The word by which the checks are counted.
    fn word(&self) -> &'static str {
        match self {
            Self::State(_) => "state",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::Unauthorized => "unauthorized",
            Self::Failed => "failed",
        }
    }
}

/// A state of a task.
#[derive(Default)]
struct TaskState {
    /// All questions that are open.
    questions: Vec<Question>,
    /// The progress that the state shows, in the members of `notifications/progress`.
    shown: ShownProgress,
    end: Option<RemoteEnd>,
    /// The time until the next poll that the state asks for.
    interval: Option<Duration>,
    /// A word for the state that is not known.
    unknown: Option<String>,
}

/// The end of a task at the server.
enum RemoteEnd {
    /// The last event of the call.
    Answer(Event),
    /// The answer is fetched by a request of its own.
    ToFetch(Box<RawValue>),
}

/// The server's answer to a request about its task.
enum RemoteAnswer {
    Result(Box<RawValue>),
    Error(UpstreamError),
    None,
}

impl RemoteAnswer {
    async fn to(mut request: Exchange, patience: Duration) -> Self {
        let asking = async {
            while let Some(event) = request.events.next().await {
                match event {
                    Event::Result(result) => return Self::Result(result),
                    Event::Error(error) => return Self::Error(error),
                    // The failure may be temporary, so the next poll decides.
                    Event::Failed(_) => break,
                    Event::Progress(_)
                    | Event::Log(_)
                    | Event::Question(_)
                    | Event::Job(_)
                    | Event::Resumable(_)
                    | Event::CredentialsRefused
                    | Event::Later(_)
                    | Event::Sent => {}
                }
            }
            Self::None
        };
        let asked = tokio::time::timeout(patience, asking).await;
        // A server that is slow now may answer the next poll, so this is no refusal.
        asked.unwrap_or(Self::None)
    }
}

/// Reads the state of a task of MCP's own, by the members that both eras have.
fn check(answer: RemoteAnswer, state: impl Fn(&Object<'_>) -> TaskState) -> TaskCheck {
    match answer {
        RemoteAnswer::Result(answer) => {
            let object = Object::parse(answer.get()).unwrap_or_default();
            TaskCheck::State(TaskState {
                shown: ShownProgress::of_task(&object),
                ..state(&object)
            })
        }
        RemoteAnswer::Error(error) if is_unauthorized(&error) => TaskCheck::Unauthorized,
        RemoteAnswer::Error(error) if is_unknown(&error) => TaskCheck::Refused,
        RemoteAnswer::Error(_) | RemoteAnswer::None => TaskCheck::Failed,
    }
}

/// Returns the end of a task of MCP's own after so many polls that failed.
fn lost_after(failures: u32) -> Option<Failure> {
    (failures >= FAILURES_MAX).then_some(LOST)
}

/// Returns `params` with the `_meta` of the call, if it has any.
fn with_meta(call: &UpstreamRequest, params: String) -> String {
    let of_call = Object::parse(&call.params).ok();
    let meta = of_call.as_ref().and_then(|params| params.get("_meta"));
    match meta {
        Some(meta) => set(&params, "_meta", meta.get()).unwrap_or(params),
        None => params,
    }
}

/// Returns the time between polls that the server asks for, under the name that its era uses.
fn interval_of(task: &Object<'_>, name: &str) -> Option<Duration> {
    let said = task.get(name)?.get().parse::<f64>().ok()?;
    // `from_secs_f64` panics on a negative or a huge number, which the server may send.
    let said = Duration::try_from_secs_f64(said / 1000.0).ok()?;
    Some(said.clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// Returns `true` if the server wants other credentials.
fn is_unauthorized(error: &UpstreamError) -> bool {
    error.status == StatusCode::UNAUTHORIZED.as_u16()
}

/// Returns `true` if the server has no such task, or does not support tasks.
fn is_unknown(error: &UpstreamError) -> bool {
    let number = result::error_code(&error.error);
    // -32602 is the error for an unknown task (2025-11-25, Tasks).
    error.status == 404 || matches!(number, Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND))
}
