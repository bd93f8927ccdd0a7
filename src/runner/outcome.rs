//! How the wrapped server's answer becomes a task's end.

use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::{input, result};
use crate::upstream::UpstreamError;

/// HTTP's words for credentials that are not accepted.
const UNAUTHORIZED: [u16; 2] = [401, 403];

/// What an answer of the server means for a task.
#[derive(Debug)]
pub(super) enum Meaning {
    Completed(Box<RawValue>),
    Failed(Box<RawValue>),
    /// A modern server asks before it goes on.
    Asks(input::Requests),
}

/// Reads a result: complete, or a round of questions. A result type that raincheck does not know
/// cannot be kept as the result of a task whose client never agreed to it.
pub(super) fn of_result(result: Box<RawValue>) -> Meaning {
    let invalid = || failed(Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown));
    match result::result_type(&result) {
        Ok(result::ResultType::Complete) => {
            result::for_task(result).map_or_else(|_| invalid(), Meaning::Completed)
        }
        Ok(result::ResultType::InputRequired) => {
            input::requests_of(&result).map_or_else(|_| invalid(), Meaning::Asks)
        }
        Ok(result::ResultType::Other) | Err(_) => invalid(),
    }
}

/// An error of the server ends the task word for word; but one about credentials, which is for
/// whoever holds them and may say what they are. `effect` is that of a call whose last leg was refused
/// so.
pub(super) fn of_error(error: UpstreamError, effect: SideEffect) -> Meaning {
    if is_unauthorized(&error) {
        return failed(Failure::new(Reason::UpstreamUnauthorized, effect));
    }
    Meaning::Failed(result::error_for_task(error.error))
}

pub(super) fn is_unauthorized(error: &UpstreamError) -> bool {
    UNAUTHORIZED.contains(&error.status)
}

pub(super) fn failed(failure: Failure) -> Meaning {
    Meaning::Failed(failure.to_error().to_raw())
}
