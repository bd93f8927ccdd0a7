//! The heartbeat: shows that this replica lives, and reads which others do. One command a second, however
//! many calls the replica carries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::alarm::Alarm;
use super::liveness::Liveness;
use super::state::Runner;
use crate::store::{Beat, StoreError};
use crate::task::id::Incarnation;
use crate::telemetry::metrics::METRICS;

/// The pause between two heartbeats, and the most that chance adds, so that replicas do not beat in step.
const BEAT: Duration = Duration::from_secs(1);
const JITTER_MS: u64 = 250;

impl Runner {
    /// Returns `true` if the last heartbeat did not list this incarnation as living. An incarnation that started
    /// after that heartbeat is also not listed.
    pub fn misses(&self, incarnation: &Incarnation) -> bool {
        let liveness = self.liveness();
        let living = liveness.living.as_ref();
        living.is_some_and(|living| !living.contains(incarnation))
    }

    /// Returns `true` if no other replica uses the store, by the last heartbeat.
    pub fn is_alone(&self) -> bool {
        let liveness = self.liveness();
        let is_me = |other: &Incarnation| *other == self.incarnation;
        let living = liveness.living.as_ref();
        self.settings.exclusive_store || living.is_some_and(|living| living.iter().all(is_me))
    }

    pub(super) fn liveness(&self) -> watch::Ref<'_, Liveness> {
        self.liveness.borrow()
    }

    /// The first heartbeat, before the first call.
    pub(super) async fn first_beat(&self) -> Result<(), StoreError> {
        self.beat().await
    }

    pub(super) async fn beat_until_halted(self: Arc<Self>) {
        let mut alarm = Alarm::default();
        let started = Instant::now();
        let mut told = None;
        loop {
            // The pause comes first, because the first sweep has tried a heartbeat just before this loop.
            let pause = BEAT + Duration::from_millis(random_u64() % JITTER_MS);
            let halted = self.halt.run_until_cancelled(tokio::time::sleep(pause));
            if halted.await.is_none() {
                return;
            }
            let began = Instant::now();
            let beaten = self.beat().await;
            let answers = beaten.is_ok();
            // Sent only on a change, because the sweeper takes each change for the begin or the end of an outage.
            self.store_answers
                .send_if_modified(|last| std::mem::replace(last, answers) != answers);
            let now = Instant::now();
            if let Err(error) = beaten {
                METRICS.process.heartbeats_failed.inc();
                if alarm.fails(error.kind(), now) {
                    warn!(%error, "the store does not answer; no call becomes a task until it answers");
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
            // The lease of the process before this one runs on for a while if that process was killed.
            if now.saturating_duration_since(started) > self.settings.lease * 2 {
                self.tell_of_twin(&mut told);
            }
        }
    }

    /// The names of the replicas whose leases run, in order. `None` until the contact with the store has lasted long enough to
    /// decide.
    pub fn living_replicas(&self) -> Option<Vec<String>> {
        let liveness = self.liveness();
        let living = liveness.living.as_ref()?;
        let mut names: Vec<String> = living.iter().map(|it| it.replica().to_owned()).collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// Warns once of each other living replica of this name: both would take the other's calls for calls of their own
    /// past.
    fn tell_of_twin(&self, told: &mut Option<Incarnation>) {
        let twin = {
            let liveness = self.liveness();
            let mut living = liveness.living.iter().flatten();
            let twin = living.find(|other| {
                **other != self.incarnation && other.replica() == self.incarnation.replica()
            });
            twin.cloned()
        };
        if twin.is_some() && twin != *told {
            let replica = self.incarnation.replica();
            warn!(
                replica,
                "another process with this replica.id is alive on the same store; give each replica a name of \
                 its own"
            );
            *told = twin;
        }
    }

    /// Sends one heartbeat. While the store was away every lease may have run out: no replica is declared
    /// dead before the contact has held for one whole lease.
    async fn beat(&self) -> Result<(), StoreError> {
        let began = Instant::now();
        let store = self.ledger.store();
        let beat = store
            .beat(Some(&self.incarnation), self.settings.lease)
            .await?;
        if let Some(clock) = &self.settings.shared_clock {
            clock.set(beat.now_ms);
        }
        let living = i64::try_from(beat.living.len()).unwrap_or(i64::MAX);
        METRICS.process.replicas.set(living);
        let since = *self.contact.lock().get_or_insert(began);
        let now = Instant::now();
        // The answer of a slow command may be out of date.
        let held = now.saturating_duration_since(since) >= self.settings.lease
            && now.saturating_duration_since(began) <= BEAT;
        // Sent even if nothing changed, because the sweeper starts with each of these.
        self.liveness.send_replace(self.liveness_of(beat, held));
        Ok(())
    }

    fn liveness_of(&self, beat: Beat, held: bool) -> Liveness {
        let mut dead = beat.dead;
        let can_tell = held || self.settings.exclusive_store;
        if !can_tell {
            dead.clear();
        }
        // This replica's own lease may have ended while it was cut off from the store.
        dead.retain(|dead| dead.incarnation != self.incarnation);
        Liveness {
            now_ms: beat.now_ms,
            dead,
            living: can_tell.then_some(beat.living),
        }
    }

    /// Notes that a command failed or took too long: a replica that seems dead may have had the same failure. Does
    /// not wake the sweeper, because the sweeper would ask a failing store again at once, without end.
    pub(super) fn contact_broke(&self) {
        *self.contact.lock() = None;
        self.liveness.send_if_modified(|view| {
            view.dead.clear();
            view.living = None;
            false
        });
    }
}

/// Sixty-four random bits. Without them replicas beat in step.
fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
