//! The state of a task that is followed, and the meaning of the answers to the request for its result.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::stream::BoxStream;
use tokio::time::Instant;

use crate::mcp::error::{Failure, Reason};
use crate::upstream::exchange::remote_task::status_message::StatusMessage;
use crate::upstream::exchange::remote_task::{TaskCheck, is_unauthorized};
use crate::upstream::port::{Event, Exchange};

pub(super) struct FollowedTask {
    pub(super) id: Arc<str>,
    pub(super) polls: BoxStream<'static, TaskCheck>,
    /// The request for the result; `None` from its failure to the next poll.
    pub(super) fetching: Option<Exchange>,
    /// A poll said that the task has ended. From here on an error is the task's own, and no refusal to let a
    /// client wait.
    pub(super) has_ended: bool,
    /// The time of the first poll in a row that said so.
    pub(super) ended: Option<Instant>,
    /// The last answer to the request for the result that was not the final one.
    pub(super) refusal: Option<Box<Event>>,
    pub(super) message: StatusMessage,
    /// The questions that were put. Their ids are unique for the life of a task.
    pub(super) asked: BTreeSet<Arc<str>>,
    /// Events of the last poll that were not taken yet.
    pub(super) ready: VecDeque<Event>,
    /// Polls in a row that failed.
    pub(super) failures: u32,
    /// The last time that a poll did not fail.
    pub(super) heard: Instant,
    /// The server has not known the task since then.
    pub(super) gone: Option<Instant>,
    /// The words for the state that are not known.
    pub(super) unknown: BTreeSet<String>,
    /// The server refused the credentials of the request for the result.
    pub(super) is_refused: bool,
}

impl FollowedTask {
    /// Reads an event of the request for the result. `None`: nothing that the client gets. `is_final`: the answer is the last one.
    pub(super) fn on_fetched(
        &mut self,
        event: Option<Event>,
        is_final: impl Fn(&Event) -> bool,
    ) -> Option<Event> {
        match event {
            Some(Event::Job(_) | Event::Resumable(_) | Event::Sent | Event::CredentialsRefused) => {
                None
            }
            Some(Event::Error(ref error)) if is_unauthorized(error) && !self.is_refused => {
                self.fetching = None;
                self.is_refused = true;
                Some(Event::CredentialsRefused)
            }
            Some(answer @ (Event::Error(_) | Event::Result(_)))
                if self.has_ended && !is_final(&answer) =>
            {
                self.refusal = Some(Box::new(answer));
                self.fetching = None;
                None
            }
            // The same would come again.
            Some(Event::Failed(ref failure)) if self.has_ended && is_too_much(failure) => event,
            Some(Event::Error(_)) if self.has_ended => event,
            // The task's own error, or a server that lets no client wait, or a stream that was cut: the
            // result is asked for again after the next poll.
            Some(Event::Error(_) | Event::Failed(_)) | None => {
                self.fetching = None;
                None
            }
            Some(event) => Some(event),
        }
    }
}

/// Returns `true` if the answer was read, and was more than raincheck takes.
fn is_too_much(failure: &Failure) -> bool {
    matches!(
        failure.reason,
        Reason::UpstreamTooLarge | Reason::UpstreamTooDeep
    )
}
