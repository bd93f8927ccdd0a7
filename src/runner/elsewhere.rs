//! Answers to questions of a legacy server that come to another replica than the one whose call asked:
//! they pass there, on the client's own session, and the server works on. A note tells the replica that
//! asked.

use std::time::Duration;

use uuid::Uuid;

use super::state::Runner;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};

/// How long it is told: longer than clients wait for a call before it becomes a task.
const LIFETIME: Duration = Duration::from_mins(10);

/// By the client's session and the server's id, as JSON.
fn note(session: &[u8; 16], question: &str) -> Name {
    let session = Uuid::from_bytes(*session).to_string();
    Name::of(Kind::Answer, &["passed", &session, question])
}

impl Runner {
    /// An answer to what no call asked here passes to the server.
    pub async fn tell_passed(&self, session: &[u8; 16], question: &str) -> Result<(), StoreError> {
        let name = note(session, question);
        self.notes.put(name, "1".into(), LIFETIME).await
    }

    /// Whether the server has an answer from another replica. Asks the store once, and not where there
    /// is no other replica.
    pub(super) async fn has_passed(
        &self,
        session: &[u8; 16],
        question: &str,
    ) -> Result<bool, StoreError> {
        if self.is_alone() {
            return Ok(false);
        }
        let found = self.ledger.store().find(note(session, question)).await?;
        Ok(found.is_some())
    }
}
