//! Reports calls from the runner to operators.

use tokio::time::Instant;

use super::responder::CallAnswer;
use crate::mcp::error::{Failure, Reason};
use crate::mcp::result::is_tool_error;
use crate::task::state::Task;
use crate::telemetry::calls::{self, Fate, PlainEnd};
use crate::upstream::UpstreamRequest;

/// The method whose calls are reported to operators; other requests bypass the limits and the metrics.
pub(super) const TOOL_CALL: &str = "tools/call";

/// The tool of a `tools/call`.
pub(super) fn tool_of(outgoing: &UpstreamRequest) -> Option<&str> {
    (*outgoing.method == *TOOL_CALL).then(|| outgoing.name.as_deref().unwrap_or_default())
}

/// The tool of a record of a `tools/call`.
pub(super) fn tool_of_task(task: &Task) -> Option<&str> {
    (*task.method == *TOOL_CALL).then_some(&*task.name)
}

/// Reports that the client of a call got something else than its plain answer.
pub(super) fn became(tool: Option<&str>, fate: Fate) {
    if let Some(tool) = tool {
        calls::became(tool, fate);
    }
}

/// Reports a call that was refused before anything of it was stored or sent.
pub(super) fn refused(tool: Option<&str>, reason: Reason) {
    calls::refused(tool, reason);
}

/// Reports the plain answer to a call that began at `began`.
pub(super) fn answered(tool: Option<&str>, answer: &CallAnswer, began: Instant) {
    if let Some(tool) = tool {
        let after = Instant::now() - began;
        calls::answered(tool, end_of(answer), after);
    }
}

fn end_of(answer: &CallAnswer) -> PlainEnd {
    match answer {
        CallAnswer::Result(result) if is_tool_error(result) => PlainEnd::ToolError,
        CallAnswer::Result(_) => PlainEnd::Completed,
        CallAnswer::Error(_) => PlainEnd::Error,
        CallAnswer::Failed(failure) => PlainEnd::Failed(failure.clone()),
        CallAnswer::StoreUnavailable(effect) => {
            PlainEnd::Failed(Failure::new(Reason::StoreLost, *effect))
        }
    }
}
