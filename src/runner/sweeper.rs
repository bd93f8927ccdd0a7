//! Looks after tasks whose owner died and tasks that are overdue, once a second.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::Runner;
use crate::mcp::error::Reason;
use crate::store::StoreError;
use crate::task::id::Incarnation;
use crate::task::machine::{Event, OwnerEvent};

const BEAT: Duration = Duration::from_secs(1);

/// Overdue tasks looked at in one beat; the rest wait for the next.
const DUE_MAX: usize = 256;

impl Runner {
    /// Before the first call: what a dead process of the same store left behind is ended.
    pub(super) async fn first_sweep(&self) -> Result<(), StoreError> {
        let beat = self
            .ledger
            .store()
            .beat(Some(&self.incarnation), self.settings.lease)
            .await?;
        if self.settings.exclusive_store {
            for dead in &beat.dead {
                self.bury(dead).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn sweep_until_halted(self: Arc<Self>) {
        let mut contact_since: Option<Instant> = None;
        while self
            .halt
            .run_until_cancelled(tokio::time::sleep(BEAT))
            .await
            .is_some()
        {
            let began = Instant::now();
            let swept = self.sweep(contact_since).await;
            let quick = Instant::now().saturating_duration_since(began) < BEAT;
            let answers = swept.is_ok();
            self.store_answers
                .send_if_modified(|last| std::mem::replace(last, answers) != answers);
            contact_since = match swept {
                Ok(()) if quick => contact_since.or(Some(began)),
                Ok(()) => None,
                Err(error) => {
                    warn!(%error, "the store did not answer the sweeper");
                    None
                }
            };
        }
    }

    /// A store that was away may have let every lease run out: nobody is declared dead before the
    /// contact has held for one whole lease.
    async fn sweep(&self, contact_since: Option<Instant>) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let beat = store
            .beat(Some(&self.incarnation), self.settings.lease)
            .await?;
        let trusted = contact_since.is_some_and(|since| {
            Instant::now().saturating_duration_since(since) >= self.settings.lease
        });
        if trusted || self.settings.exclusive_store {
            for dead in beat.dead.iter().filter(|dead| **dead != self.incarnation) {
                self.bury(dead).await?;
            }
        }
        self.settle_doubts().await?;
        for id in store.due(self.ledger.now_ms(), DUE_MAX).await? {
            match self.ledger.load(id).await? {
                Some(loaded) => self.settle(&loaded, Event::Tick, Reason::Deadline).await,
                None => store.forget(id, None).await?,
            }
        }
        Ok(())
    }

    /// Ends what a dead owner carried, then forgets the owner.
    async fn bury(&self, dead: &Incarnation) -> Result<(), StoreError> {
        let store = self.ledger.store();
        let left_behind = store.indexed(dead).await?;
        info!(
            owner = dead.as_str(),
            tasks = left_behind.len(),
            "an owner's lease has ended"
        );
        for id in left_behind {
            match self.ledger.load(id).await? {
                Some(loaded) if loaded.task.must_tell => {
                    let told = Event::Owner(loaded.task.fence, OwnerEvent::Told);
                    let _ = self.ledger.apply(&loaded, told).await;
                }
                Some(loaded) if loaded.task.owner.as_ref() == Some(dead) => {
                    self.abandon(&loaded, Reason::OwnerLost).await;
                }
                Some(_) => {}
                None => store.forget(id, Some(dead)).await?,
            }
        }
        if store.indexed(dead).await?.is_empty() {
            store.retire(dead).await?;
        }
        Ok(())
    }

    /// Ends creates whose caller was refused although the store may have taken them.
    async fn settle_doubts(&self) -> Result<(), StoreError> {
        loop {
            let next = self
                .in_doubt
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .front()
                .copied();
            let Some(id) = next else { return Ok(()) };
            if let Some(loaded) = self.ledger.load(id).await? {
                let event = Event::Abandoned(super::not_sent(Reason::StoreLost));
                self.settle(&loaded, event, Reason::StoreLost).await;
            }
            let mut in_doubt = self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner);
            if in_doubt.front() == Some(&id) {
                in_doubt.pop_front();
            }
        }
    }
}
