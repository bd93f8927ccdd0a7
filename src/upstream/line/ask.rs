//! One request of raincheck's own over a line.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::mcp::error::{Failure, SideEffect};
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::line::event::LineEvent;
use crate::upstream::line::shared::SharedLine;
use crate::upstream::pool::MayAsk;
use crate::upstream::port::UpstreamError;
use crate::upstream::request_id::RequestId;
use crate::upstream::translate;

/// Why a request of raincheck's own has no result.
#[derive(Debug)]
pub(in crate::upstream) enum AskError {
    /// The server answered with this error.
    Error(Box<RawValue>),
    /// The server did not take the message; this is what the server said.
    Refused(UpstreamError),
    /// The line cannot take the request.
    Unsent,
    Failed(Failure),
}

impl AskError {
    /// The failure of a request that ran nothing and has no answer.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Failed(failure) if failure.reason.is_no_mcp() => {
                failure.clone().with_effect(SideEffect::None)
            }
            Self::Error(_) | Self::Refused(_) | Self::Unsent | Self::Failed(_) => UNREACHABLE,
        }
    }
}

/// One request of raincheck's own, of which only the answer is of interest.
pub(in crate::upstream) async fn ask(
    line: &Arc<SharedLine>,
    method: &str,
    params: &str,
) -> Result<Box<RawValue>, AskError> {
    // No client stands behind this request, so no question of the server may be put to it.
    let mut ticket = line.open(MayAsk::Never).ok_or(AskError::Unsent)?;
    let text = translate::request(&RequestId::number(ticket.id), method, params);
    ticket.send(text).await;
    loop {
        match ticket.next().await {
            LineEvent::Progress(_)
            | LineEvent::Log(_)
            | LineEvent::Notice(_)
            | LineEvent::Question(_) => {}
            LineEvent::Result(result) => return Ok(result),
            LineEvent::Error(error) => return Err(AskError::Error(error)),
            LineEvent::Refused(error) => return Err(AskError::Refused(error)),
            LineEvent::Unsent(failure) | LineEvent::Failed(failure) => {
                return Err(AskError::Failed(failure));
            }
        }
    }
}
