//! How the wrapped server's answer becomes a task's end.

use serde_json::value::RawValue;

use super::Runner;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::{input, result};
use crate::store::ledger::{INLINE_BYTES_MAX, Loaded, NotApplied};
use crate::task::machine::{Event, OwnerEvent};
use crate::task::state::{Outcome, Payload};
use crate::upstream::UpstreamError;

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

pub(super) fn of_error(error: UpstreamError) -> Meaning {
    Meaning::Failed(result::error_for_task(error.error))
}

pub(super) fn failed(failure: Failure) -> Meaning {
    Meaning::Failed(failure.to_error().to_raw())
}

impl Runner {
    /// Writes the end of a task. A store that is away is asked again with growing pauses until the
    /// task's own deadline has passed: the result exists nowhere else.
    pub(super) async fn finish(
        &self,
        loaded: &Loaded,
        completed: Result<Box<RawValue>, Box<RawValue>>,
    ) {
        let task = &loaded.task;
        let mut pause = std::time::Duration::from_millis(100);
        loop {
            let why = match self.try_finish(loaded, &completed).await {
                Ok(()) => return,
                Err(why) => why,
            };
            if self.ledger.now_ms() > task.deadline_ms || self.halt.is_cancelled() {
                let bytes = completed
                    .as_ref()
                    .map_or_else(|e| e.get().len(), |r| r.get().len());
                tracing::error!(task = ?task.id, bytes, error = %why, "a result was lost with the store");
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(5));
        }
    }

    async fn try_finish(
        &self,
        loaded: &Loaded,
        completed: &Result<Box<RawValue>, Box<RawValue>>,
    ) -> Result<(), crate::store::StoreError> {
        let fence = loaded.task.fence;
        let (outcome, message) = match completed {
            Ok(result) if result.get().len() > INLINE_BYTES_MAX => {
                let bytes = bytes::Bytes::copy_from_slice(result.get().as_bytes());
                let kept = Payload::Kept {
                    fence,
                    bytes: bytes.len() as u64,
                };
                self.ledger.keep(&loaded.task, fence, bytes).await?;
                (Outcome::Completed(kept), None)
            }
            Ok(result) => (Outcome::Completed(Payload::Inline(result.clone())), None),
            Err(error) => {
                let message = result::error_message(error).map(Into::into);
                (Outcome::Failed(error.clone()), message)
            }
        };
        let event = Event::Owner(fence, OwnerEvent::Ended { outcome, message });
        match self.ledger.apply(loaded, event).await {
            Ok(_) => Ok(()),
            Err(NotApplied::Rejected(..) | NotApplied::Gone) => {
                tracing::info!(task = ?loaded.task.id, "an answer came after the task's end; dropped");
                Ok(())
            }
            Err(NotApplied::Store(why)) => Err(why),
        }
    }
}
