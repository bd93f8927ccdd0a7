//! Refuses new calls of paused tools before the server is asked anything: it may be away for as long as the pause lasts.

use crate::mcp::error::{Reason, RpcError};
use crate::mcp::input::is_answer;
use crate::mcp::request::Request;
use crate::task::pauses::Pause;
use crate::task::policy::Rules;
use crate::telemetry::calls;

/// Refuses a call of a paused tool, unless it may wait in the queue of its rule, or belong to a call that runs.
pub(super) fn check(
    tool: &str,
    request: &Request<'_>,
    has_key: bool,
    rules: &Rules,
) -> Result<(), RpcError> {
    let Some(pause) = rules.pauses().of(tool) else {
        return Ok(());
    };
    let rule = rules.for_tool(tool).0;
    // A claim may stand for a call that runs.
    let may_join = has_key || rule.attach_window_ms.is_some();
    if may_join || is_answer(&request.params) || rule.concurrency.is_some() {
        return Ok(());
    }
    Err(refusal(tool, pause))
}

/// The answer to a call that the pause refuses.
pub(super) fn refusal(tool: &str, pause: &Pause) -> RpcError {
    calls::refused(Some(tool), Reason::Paused);
    pause.failure().to_error()
}
