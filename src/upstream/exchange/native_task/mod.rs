//! A call that the server runs as a task of its own, followed to its end. For the client it is a call like any
//! other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, code};
use crate::mcp::json::{Object, Writer};
use crate::mcp::result;
use crate::upstream::failures::RESET;
use crate::upstream::port::{Event, Exchange, UpstreamError, UpstreamRequest};

pub(in crate::upstream) mod legacy;
pub(in crate::upstream) mod modern;

/// The time between polls if the server does not say, and the bounds of what it says.
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Requests in a row that may fail before the task is given up.
const FAILURES_MAX: u32 = 5;

/// How long a server may take to answer about its task.
const ASK_PATIENCE: Duration = Duration::from_secs(10);

/// Begins one request at the server.
pub(in crate::upstream) type BeginRequest = Arc<dyn Fn(UpstreamRequest) -> Exchange + Send + Sync>;

/// It cannot be found out how the task ended.
const LOST: Failure = RESET;

/// What the server says to a request about its task.
enum TaskAnswer {
    Result(Box<RawValue>),
    /// The server does not know the task, or refuses to tell.
    Refused,
    None,
}

impl TaskAnswer {
    async fn to(mut request: Exchange) -> Self {
        let asking = async {
            while let Some(event) = request.events.next().await {
                match event {
                    Event::Result(result) => return Self::Result(result),
                    Event::Error(error) if is_unknown(&error) => return Self::Refused,
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
        asked.unwrap_or(Self::None)
    }
}

/// The interval between polls that the server asks for, under the name that its era uses.
fn interval_of(task: &Object<'_>, name: &str) -> Option<Duration> {
    let said = task.get(name)?.get().parse::<f64>().ok()?;
    let said = Duration::try_from_secs_f64(said / 1000.0).ok()?;
    Some(said.clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// Whether the server says that it has no such task, or knows nothing of tasks.
fn is_unknown(error: &UpstreamError) -> bool {
    let number = result::error_code(&error.error);
    error.status == 404 || matches!(number, Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND))
}

/// The task's status message as progress, where it has changed.
#[derive(Default)]
struct StatusMessage {
    last: Option<String>,
    changes: u64,
}

impl StatusMessage {
    fn progress(&mut self, task: &Object<'_>) -> Option<Box<RawValue>> {
        let message = task.get_str("statusMessage")?;
        if self.last.as_deref() == Some(&*message) {
            return None;
        }
        self.changes += 1;
        let mut params = Writer::object();
        params
            .number("progressToken", 0)
            .number("progress", self.changes)
            .str("message", &message);
        self.last = Some(message.into_owned());
        RawValue::from_string(params.end()).ok()
    }
}
