//! Calls that the server runs as tasks of its own: followed to their end, so that to whoever made one it
//! is a call like any other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::port::{Exchange, Outgoing, UpstreamError};
use crate::mcp::error::{Failure, Reason, SideEffect, code};
use crate::mcp::json::{Object, Writer};
use crate::mcp::result;

pub(super) mod legacy;
pub(super) mod modern;

/// Between polls, where the server does not say, and the bounds of what it says.
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Requests in a row that may fail before the task is given up.
const FAILURES_MAX: u32 = 5;

/// Begins one request at the server.
pub(super) type Begin = Arc<dyn Fn(Outgoing) -> Exchange + Send + Sync>;

const LOST: Failure = Failure {
    reason: Reason::UpstreamReset,
    effect: SideEffect::Unknown,
};

/// How often the server wants to be asked, under its era's name for it.
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

/// The task's message as progress, where it has changed.
#[derive(Default)]
struct Words {
    last: Option<String>,
    changes: u64,
}

impl Words {
    fn heard(&mut self, task: &Object<'_>) -> Option<Box<RawValue>> {
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
