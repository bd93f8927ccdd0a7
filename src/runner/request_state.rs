//! The request state: the client of a parked call gets it, and sends it back with the answers.

use crate::mcp::json::Writer;
use crate::task::id::TaskId;
use crate::task::state::Task;
use crate::task::view;

/// The `InputRequiredResult` of a parked call: its open questions, and the request state for the retry.
pub(super) fn input_required(task: &Task) -> String {
    let mut out = Writer::with_capacity(512);
    out.str("resultType", "input_required");
    out.raw(
        "inputRequests",
        view::input_requests(task).as_deref().unwrap_or("{}"),
    );
    out.str("requestState", &state_of(task));
    out.end()
}

/// The request state: the call's id, which is random and bound to its caller and its request, and the number
/// of questions so far, so that each round has a state of its own.
fn state_of(task: &Task) -> String {
    format!("{}.{}", task.id, task.questions.len())
}

/// The id of the parked call that a request state names.
pub fn read_state(state: &str) -> Option<TaskId> {
    let (id, asked) = state.split_once('.')?;
    // The number only makes the states of two rounds differ. The record is found by the id alone.
    asked.parse::<u16>().ok()?;
    TaskId::parse(id)
}
