//! A question of a task for one session.

use uuid::Uuid;

use crate::downstream::inbound::session_key::SessionKey;
use crate::store::kv::{Kind, Name};
use crate::task::id::TaskId;

/// A question of a task, by its key, for one session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionQuestion<'a> {
    pub(super) session: SessionKey,
    pub(super) task: TaskId,
    pub(super) key: &'a str,
}

impl SessionQuestion<'_> {
    /// Returns the name of the note that contains the kind of stream that has the question.
    pub(super) fn name(&self) -> Name {
        let session = Uuid::from_bytes(*self.session.as_bytes()).to_string();
        Name::of(
            Kind::QuestionStream,
            &[&session, &self.task.to_string(), self.key],
        )
    }
}
