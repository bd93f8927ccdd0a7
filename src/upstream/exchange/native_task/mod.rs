//! A call that the server runs as a task of its own, followed to its end. For the client it is a call like any
//! other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::value::RawValue;

use crate::mcp::error::{Failure, code};
use crate::mcp::json::{Object, Writer, prepend};
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
enum NativeAnswer {
    Result(Box<RawValue>),
    /// The server does not know the task, or refuses to tell.
    Refused,
    None,
}

impl NativeAnswer {
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

/// The interval between polls that the server asks for, under the name that its era uses.
fn interval_of(task: &Object<'_>, name: &str) -> Option<Duration> {
    let said = task.get(name)?.get().parse::<f64>().ok()?;
    // `from_secs_f64` panics on a negative or a huge number, which the server may send.
    let said = Duration::try_from_secs_f64(said / 1000.0).ok()?;
    Some(said.clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// Whether the server says that it has no such task, or knows nothing of tasks.
fn is_unknown(error: &UpstreamError) -> bool {
    let number = result::error_code(&error.error);
    // -32602 is the error for an unknown task (2025-11-25, Tasks).
    error.status == 404 || matches!(number, Some(code::INVALID_PARAMS | code::METHOD_NOT_FOUND))
}

/// What the task's state says of progress, where it has changed.
#[derive(Default)]
struct StatusMessage {
    last: Option<String>,
    changes: u64,
}

/// Where raincheck tells the progress of a task, as another raincheck may that wraps it.
const PROGRESS: &str = "io.raincheck/progress";

impl StatusMessage {
    /// The `params` of a `notifications/progress`. Without numbers of the server's own, the changes are counted.
    fn progress(&mut self, task: &Object<'_>) -> Option<Box<RawValue>> {
        let meta = task.get_object("_meta").unwrap_or_default();
        let numbers = meta.get_object(PROGRESS).unwrap_or_default();
        let message = task.get_str("statusMessage");
        let mut told = Writer::object();
        for key in ["progress", "total"] {
            if let Some(number) = numbers.get(key) {
                told.raw(key, number.get());
            }
        }
        if let Some(message) = &message {
            told.str("message", message);
        }
        let told = told.end();
        if told == "{}" || self.last.as_deref() == Some(&*told) {
            return None;
        }
        self.changes += 1;
        // A placeholder: the client's own token replaces it (`tell_progress`).
        let mut params = prepend(&told, "progressToken", "0");
        if !numbers.contains("progress") {
            params = prepend(&params, "progress", &self.changes.to_string());
        }
        self.last = Some(told);
        RawValue::from_string(params).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_the_servers_own_numbers_or_counts_its_words() {
        let mut seen = StatusMessage::default();
        let mut told = |state: &str| {
            let progress = seen.progress(&Object::parse(state).unwrap());
            progress.map(|params| params.get().to_owned())
        };
        let words = r#"{"statusMessage":"a"}"#;
        let counted = r#"{"progress":1,"progressToken":0,"message":"a"}"#;
        assert_eq!(told(words).as_deref(), Some(counted));
        assert_eq!(told(words), None);
        let own = r#"{"_meta":{"io.raincheck/progress":{"progress":0.5,"total":4}}}"#;
        let passed = r#"{"progressToken":0,"progress":0.5,"total":4}"#;
        assert_eq!(told(own).as_deref(), Some(passed));
        assert_eq!(told("{}"), None);
    }
}
