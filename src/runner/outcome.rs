//! Interprets an answer of the wrapped server for a task.

use serde_json::value::RawValue;

use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::failure_detail::FailureDetail;
use crate::mcp::input;
use crate::mcp::result::{self, ResultType};
use crate::upstream::UpstreamError;

/// The HTTP statuses of credentials that the server does not accept.
const UNAUTHORIZED: [u16; 2] = [401, 403];

/// The outcome of a leg.
#[derive(Debug)]
pub(super) enum LegOutcome {
    Completed(Box<RawValue>),
    Failed(Box<RawValue>),
    /// A modern server asks before the next leg.
    Asks(input::Requests),
}

/// Reads a result: complete, or a round of questions. A result type that raincheck does not know
/// cannot be kept as the result of a task whose client never agreed to it.
pub(super) fn of_result(result: Box<RawValue>) -> LegOutcome {
    let invalid = || failed(&Failure::new(Reason::UpstreamInvalid, SideEffect::Unknown));
    match result::typed_for_task(result) {
        Ok((ResultType::Complete, result)) => LegOutcome::Completed(result),
        Ok((ResultType::InputRequired, result)) => {
            input::requests_of(&result).map_or_else(|_| invalid(), LegOutcome::Asks)
        }
        Ok((ResultType::Other, _)) | Err(_) => invalid(),
    }
}

/// Reads an error: it ends the task word for word. An error about credentials does not end the task word for
/// word, because its text may contain them. `effect` is the effect of a call whose last leg failed with such
/// an error.
pub(super) fn of_error(error: UpstreamError, effect: SideEffect) -> LegOutcome {
    if is_unauthorized(&error) {
        let detail = FailureDetail::Http {
            status: error.status,
            text: String::new(),
        };
        let failure = Failure::new(Reason::UpstreamUnauthorized, effect);
        return failed(&failure.with_detail(detail));
    }
    LegOutcome::Failed(result::error_for_task(error.error))
}

pub(super) fn is_unauthorized(error: &UpstreamError) -> bool {
    UNAUTHORIZED.contains(&error.status)
}

pub(super) fn failed(failure: &Failure) -> LegOutcome {
    LegOutcome::Failed(failure.to_error().to_raw())
}
