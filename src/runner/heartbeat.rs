//! Shows that this replica lives, and who else does: one command a second, however much it carries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::alarm::Alarm;
use super::living::View;
use super::state::Runner;
use crate::store::{Beat, StoreError};
use crate::task::id::Incarnation;

/// Between two heartbeats, and the most that chance adds, so that replicas do not beat in step.
const BEAT: Duration = Duration::from_secs(1);
const JITTER_MS: u64 = 250;

impl Runner {
    /// Whether this is no incarnation that lives, as far as can be told by the last heartbeat: who
    /// began to live since is not in it.
    pub fn misses(&self, incarnation: &Incarnation) -> bool {
        let view = self.view();
        let living = view.living.as_ref();
        living.is_some_and(|living| !living.contains(incarnation))
    }

    /// Whether no other replica uses the store, as far as can be told by the last heartbeat.
    pub fn is_alone(&self) -> bool {
        let view = self.view();
        let is_me = |other: &Incarnation| *other == self.incarnation;
        let living = view.living.as_ref();
        self.settings.exclusive_store || living.is_some_and(|living| living.iter().all(is_me))
    }

    pub(super) fn view(&self) -> watch::Ref<'_, View> {
        self.view.borrow()
    }

    /// The first heartbeat, before the first call.
    pub(super) async fn first_beat(&self) -> Result<(), StoreError> {
        self.beat().await
    }

    pub(super) async fn beat_until_halted(self: Arc<Self>) {
        let mut alarm = Alarm::default();
        loop {
            let pause = BEAT + Duration::from_millis(chance() % JITTER_MS);
            let halted = self.halt.run_until_cancelled(tokio::time::sleep(pause));
            if halted.await.is_none() {
                return;
            }
            let began = Instant::now();
            let beaten = self.beat().await;
            let answers = beaten.is_ok();
            self.store_answers
                .send_if_modified(|last| std::mem::replace(last, answers) != answers);
            let now = Instant::now();
            if let Err(error) = beaten {
                if alarm.fails(error.kind(), now) {
                    warn!(%error, "the store does not answer; until it does no call becomes a task");
                }
                self.contact_broke();
                continue;
            }
            if alarm.works() {
                info!("the store answers again");
            }
            if now.saturating_duration_since(began) > BEAT {
                self.contact_broke();
            }
        }
    }

    /// A store that was away may have let every lease run out: nobody is declared dead before the
    /// contact has held for one whole lease.
    async fn beat(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let store = self.ledger.store();
        let beat = store
            .beat(Some(&self.incarnation), self.settings.lease)
            .await?;
        if let Some(clock) = &self.settings.shared_clock {
            clock.set(beat.now_ms);
        }
        self.ledger.write_for(&beat.living);
        let since = *self.contact.lock().get_or_insert(began);
        let now = Instant::now();
        // What took long may be old news.
        let held = now.saturating_duration_since(since) >= self.settings.lease
            && now.saturating_duration_since(began) <= BEAT;
        self.view.send_replace(self.judge(beat, held));
        Ok(())
    }

    fn judge(&self, beat: Beat, held: bool) -> View {
        let mut dead = beat.dead;
        let can_judge = held || self.settings.exclusive_store;
        if !can_judge {
            dead.clear();
        }
        dead.retain(|dead| dead.incarnation != self.incarnation);
        View {
            now_ms: beat.now_ms,
            dead,
            living: can_judge.then_some(beat.living),
        }
    }

    /// A command failed or took too long: whoever seems dead may only have met the same. Wakes
    /// nobody: the sweeper waits for the next heartbeat, and would else ask a failing store at once
    /// and without end.
    pub(super) fn contact_broke(&self) {
        *self.contact.lock() = None;
        self.view.send_if_modified(|view| {
            view.dead.clear();
            view.living = None;
            false
        });
    }
}

/// Sixty-four random bits; where the system gives none, replicas beat in step.
fn chance() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
