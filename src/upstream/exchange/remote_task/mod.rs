//! A call that the server runs as a task of its own, followed to its end. For the client it is a call like any
//! other. The [`driver`] creates, checks, fetches and cancels; a [`TaskCodec`] has the words of one kind of server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, code};
use crate::mcp::json::Object;
use crate::mcp::result;
use crate::upstream::failures::RESET;
use crate::upstream::port::{Answer, Event, Exchange, Question, UpstreamError, UpstreamRequest};

mod driver;
pub(in crate::upstream) mod legacy;
pub(in crate::upstream) mod modern;
mod status_message;

/// The bounds of the time between polls that a server asks for.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The time that a server has to answer about its task.
const ASK_PATIENCE: Duration = Duration::from_secs(10);

/// Begins one request at the server.
pub(in crate::upstream) type BeginRequest = Arc<dyn Fn(UpstreamRequest) -> Exchange + Send + Sync>;

/// It cannot be found out how the task ended.
const LOST: Failure = RESET;

/// The words in which one kind of server speaks of its tasks.
trait TaskCodec: Clone + Send + Sync + 'static {
    /// The method that fetches the result. `None`: the state of an ended task has it.
    const FETCH: Option<&'static str>;

    /// The task that the answer to the call names, if it names one.
    fn created(&self, answer: &Object<'_>) -> Option<CreatedTask>;

    /// A request about a task of that id, for the client of the call.
    fn about(&self, call: &UpstreamRequest, id: &str, method: &str) -> UpstreamRequest;

    /// The time until the next poll that a state asks for.
    fn interval(&self, state: &Object<'_>) -> Option<Duration>;

    /// Reads the state of a task.
    fn state(&self, state: &Object<'_>) -> TaskState;

    /// The request that answers a question of the task. `None`: the answer goes to the request on which the server
    /// asked.
    fn update(
        &self,
        call: &UpstreamRequest,
        id: &str,
        question: &str,
        answer: &Answer,
    ) -> Option<UpstreamRequest>;
}

/// A task that the server has made.
struct CreatedTask {
    id: Arc<str>,
    interval: Option<Duration>,
}

/// A state of a task.
struct TaskState {
    /// All questions that are open.
    questions: Vec<Question>,
    end: Option<RemoteEnd>,
}

/// The end of a task at the server.
enum RemoteEnd {
    /// The last event of the call.
    Answer(Event),
    /// The answer is fetched by a request of its own.
    ToFetch,
}

/// The server's answer to a request about its task.
enum RemoteAnswer {
    Result(Box<RawValue>),
    /// The server has no such task, or does not support tasks.
    Refused,
    None,
}

impl RemoteAnswer {
    async fn to(mut request: Exchange) -> Self {
        let asking = async {
            while let Some(event) = request.events.next().await {
                match event {
                    Event::Result(result) => return Self::Result(result),
                    Event::Error(error) if is_unknown(&error) => return Self::Refused,
                    // Any other failure may be temporary, so the next poll decides.
                    Event::Error(_) | Event::Failed(_) => break,
                    Event::Progress(_)
                    | Event::Log(_)
                    | Event::Question(_)
                    | Event::Resumable
                    | Event::Later(_)
                    | Event::Sent => {}
                }
            }
            Self::None
        };
        let asked = tokio::time::timeout(ASK_PATIENCE, asking).await;
        // A server that is slow now may answer the next poll, so this is no refusal.
        asked.unwrap_or(Self::None)
    }
}

/// Returns the time between polls that the server asks for, under the name that its era uses.
fn interval_of(task: &Object<'_>, name: &str) -> Option<Duration> {
    let said = task.get(name)?.get().parse::<f64>().ok()?;
    // `from_secs_f64` panics on a negative or a huge number, which the server may send.
    let said = Duration::try_from_secs_f64(said / 1000.0).ok()?;
    Some(said.clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// Returns `true` if the server has no such task, or does not support tasks.
fn is_unknown(error: &UpstreamError) -> bool {
    let number = result::error_code(&error.error);
    // -32602 is the error for an unknown task (2025-11-25, Tasks).
    error.status == 404 || matches!(number, Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND))
}
