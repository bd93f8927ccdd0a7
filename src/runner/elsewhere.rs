//! Answers to a legacy server's question that reach another replica than the call's owner. That replica passes an
//! answer to the server, on the client's own session, and writes a value into the store that notifies the owner.

use std::time::Duration;

use uuid::Uuid;

use super::state::Runner;
use crate::store::StoreError;
use crate::store::kv::{Kind, Name};

/// The lifetime of the value: longer than clients wait for a call before it becomes a task.
const LIFETIME: Duration = Duration::from_mins(10);

/// The name of the value, from the client's session and the server's JSON-RPC id.
fn note(session: &[u8; 16], question: &str) -> Name {
    let session = Uuid::from_bytes(*session).to_string();
    Name::of(Kind::Answer, &["passed", &session, question])
}

impl Runner {
    /// Records that this replica passed an answer to the server although no call on this replica asked the
    /// question.
    pub async fn record_passed(
        &self,
        session: &[u8; 16],
        question: &str,
    ) -> Result<(), StoreError> {
        let name = note(session, question);
        self.kv.put(name, "1".into(), LIFETIME).await
    }

    /// Returns `true` if the server has an answer from another replica. Asks the store once, and not at all if there
    /// is no other replica.
    pub(super) async fn was_passed(
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
