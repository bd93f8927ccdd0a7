//! The health of the process, and the readiness that an orchestrator derives from it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::degraded::{Degraded, DegradedCauses};
use crate::base::backoff::Backoff;
use crate::base::lock::Mutex;
use crate::telemetry::metrics::METRICS;
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// The pauses between attempts to reach the upstream, and the longest of them.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), PAUSE_MAX);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The pause after a look at a server that gave an answer that no MCP server gives, and between the questions to a
/// server that answered.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// A function that describes what is wrong with a server, and what its operator can do about it.
pub type Describe<'d> = &'d (dyn Fn(&DiscoverError) -> String + Send + Sync);

/// The causes that are about the store.
const STORE_CAUSES: [Degraded; 3] = [
    Degraded::StoreAway,
    Degraded::StoreFull,
    Degraded::StoreMayEvict,
];

/// The known facts about the parts of the process. A part counts as missing until it was reached once.
#[derive(Debug)]
pub struct Health {
    /// `true` if the process is not ready while a store that was reached before is unavailable.
    ready_needs_store: bool,
    /// `true` if clients are identified with keys that must be fetched first.
    needs_keys: bool,
    facts: Mutex<Facts>,
    /// A weak reference, because probes are answered even after the drain, and must not keep the program alive.
    program: Mutex<Weak<Upstream>>,
}

#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a part"
)]
struct Facts {
    upstream: bool,
    store: bool,
    keys: bool,
    draining: bool,
    degraded: DegradedCauses,
}

/// The answer to one probe.
#[derive(Debug, PartialEq, Eq)]
pub struct Readiness {
    pub ready: bool,
    /// The missing parts, as JSON.
    pub json: String,
}

impl Health {
    pub fn new(ready_needs_store: bool) -> Self {
        Self {
            ready_needs_store,
            needs_keys: false,
            facts: Mutex::default(),
            program: Mutex::default(),
        }
    }

    /// Also makes the process not ready while the server's program cannot be run, because raincheck starts that program.
    /// A server elsewhere that goes away later has a probe of its own, and raincheck is only degraded.
    pub fn in_front_of(&self, upstream: &Arc<Upstream>) {
        *self.program.lock() = Arc::downgrade(upstream);
    }

    /// Also makes the process not ready until the keys of all issuers of tokens were fetched: before that, no client gets in.
    #[must_use]
    pub fn behind_keys(self, needs_keys: bool) -> Self {
        Self { needs_keys, ..self }
    }

    /// Records that the keys of all issuers were fetched.
    pub fn keys_fetched(&self) {
        self.change(|facts| facts.keys = true);
    }

    /// Records that the wrapped server has answered.
    pub fn upstream_reached(&self) {
        self.change(|facts| facts.upstream = true);
    }

    /// Records the state of the store: `None` if it answers and is in order.
    pub fn store_is(&self, degraded: Option<Degraded>) {
        self.change(|facts| {
            // A part that was reached once counts as there. A later outage is a degraded state.
            facts.store |= degraded.is_none();
            for cause in STORE_CAUSES {
                facts.degraded.set(cause, degraded == Some(cause));
            }
        });
    }

    /// Records that a cause of a degraded state holds, or holds no more.
    pub fn note(&self, cause: Degraded, holds: bool) {
        self.change(|facts| facts.degraded.set(cause, holds));
    }

    /// The causes of a degraded state that hold now.
    pub fn degraded(&self) -> DegradedCauses {
        self.lock().degraded
    }

    /// Records that the drain has begun, so that no new client comes.
    pub fn draining(&self) {
        self.change(|facts| facts.draining = true);
    }

    pub fn readiness(&self) -> Readiness {
        self.readiness_of(self.can_run())
    }

    fn can_run(&self) -> bool {
        let program = self.program.lock().upgrade();
        !program.is_some_and(|upstream| upstream.cannot_run())
    }

    /// Writes the health into the metrics. Called for each scrape.
    pub fn measure(&self) {
        let metrics = &METRICS.process;
        let (facts, can_run) = (*self.lock(), self.can_run());
        let is_up = facts.upstream && can_run && !facts.degraded.contains(Degraded::UpstreamAway);
        metrics.upstream_up.set(is_up.into());
        metrics.ready.set(self.readiness_of(can_run).ready.into());
        for cause in Degraded::ALL {
            let holds = facts.degraded.contains(cause);
            let gauge = metrics.degraded.with_label_values(&[cause.word()]);
            gauge.set(holds.into());
        }
    }

    fn readiness_of(&self, can_run: bool) -> Readiness {
        let facts = *self.lock();
        let missing: Vec<&str> = [
            ("upstream", facts.upstream),
            ("upstream_cannot_run", can_run),
            ("store", facts.store),
            ("issuer_keys", facts.keys || !self.needs_keys),
        ]
        .into_iter()
        .filter_map(|(part, is_there)| (!is_there).then_some(part))
        .collect();
        // A store that may evict keys still works. A replica that is not ready would only take capacity away.
        let lacks_store = self.ready_needs_store && facts.degraded.contains(Degraded::StoreAway);
        let ready = missing.is_empty() && !facts.draining && !lacks_store;
        let json = json!({
            "ready": ready,
            "missing": missing,
            "draining": facts.draining,
            "degraded": facts.degraded.gravest().map(Degraded::word),
        });
        Readiness {
            ready,
            json: json.to_string(),
        }
    }

    /// Asks the server until it answers as an MCP server does, because no client asks before the pod is ready. The
    /// request is anonymous, so a server that demands credentials counts as reached. Cancel safe.
    pub async fn await_upstream(&self, upstream: &Upstream, describe: Describe<'_>) {
        self.look_until_found(upstream, describe).await;
        info!("the server answers");
        self.upstream_reached();
    }

    /// Looks again at a server with an address whenever it gave an answer that no MCP server gives. If `is_asked`, asks
    /// it also again and again, because no request would show that it is away where clients send none. Cancel safe.
    pub async fn watch_upstream(&self, is_asked: bool, describe: Describe<'_>) {
        let mut is_up = true;
        loop {
            // Another one may have taken its place, when the store came.
            let upstream = self.program.lock().upgrade();
            // A program is not asked, because `can_run` has its state.
            let Some(upstream) = upstream.filter(|it| it.has_address()) else {
                return;
            };
            // A server that is away is asked sooner, so that its return shows soon.
            let pause = if is_up { ASK_AGAIN } else { PAUSE_MAX };
            if timeout(pause, upstream.suspected()).await.is_ok() {
                self.look_until_found(&upstream, describe).await;
                // A server may refuse many requests for good reasons.
                sleep(ASK_AGAIN).await;
            } else if is_asked {
                let was_up = std::mem::replace(&mut is_up, upstream.is_up().await);
                match (was_up, is_up) {
                    (true, false) => warn!("the server does not answer any more"),
                    (false, true) => info!("the server answers again"),
                    (true, true) | (false, false) => {}
                }
                self.note(Degraded::UpstreamAway, !is_up);
            }
        }
    }

    async fn look_until_found(&self, upstream: &Upstream, describe: Describe<'_>) {
        let mut pauses = PAUSES;
        let mut told = None;
        loop {
            let error = match upstream.look().await {
                Ok(()) | Err(DiscoverError::Unauthorized(_)) => break,
                Err(error) => error,
            };
            let is_no_mcp =
                matches!(&error, DiscoverError::Failed(failure) if failure.reason.is_no_mcp());
            self.note(Degraded::UpstreamNotMcp, is_no_mcp);
            let why = if is_no_mcp {
                describe(&error)
            } else {
                String::new()
            };
            // One line for each new reason, and not for each attempt.
            if told.as_ref() != Some(&why) {
                if is_no_mcp {
                    warn!(
                        why,
                        "what answers at upstream.url is no MCP server; it is asked until one answers"
                    );
                } else {
                    warn!("the server does not answer yet; it is asked until it does");
                }
                told = Some(why);
            }
            sleep(pauses.spread_pause()).await;
        }
        if self.degraded().contains(Degraded::UpstreamNotMcp) {
            info!("an MCP server answers at upstream.url");
        }
        self.note(Degraded::UpstreamNotMcp, false);
    }

    fn change(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Facts> {
        self.facts.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(ready_needs_store: bool) -> Health {
        let health = Health::new(ready_needs_store);
        health.upstream_reached();
        health.store_is(None);
        health
    }

    #[test]
    fn it_is_ready_once_all_was_reached() {
        let health = Health::new(false);
        assert_eq!(
            health.readiness().json,
            r#"{"degraded":null,"draining":false,"missing":["upstream","store"],"ready":false}"#
        );
        health.store_is(None);
        assert!(!health.readiness().ready);
        health.upstream_reached();
        assert!(health.readiness().ready);
    }

    #[test]
    fn a_store_that_was_never_there_is_missing_and_not_degraded_only() {
        let health = Health::new(false);
        health.upstream_reached();
        health.store_is(Some(Degraded::StoreAway));
        assert!(!health.readiness().ready);
    }

    #[test]
    fn a_store_lost_later_takes_nobody_out_of_service() {
        let health = reached(false);
        health.store_is(Some(Degraded::StoreAway));
        assert_eq!(
            health.readiness().json,
            r#"{"degraded":"store_away","draining":false,"missing":[],"ready":true}"#
        );
    }

    #[test]
    fn unless_that_is_asked_for() {
        let health = reached(true);
        health.store_is(Some(Degraded::StoreAway));
        assert!(!health.readiness().ready);
        health.store_is(Some(Degraded::StoreMayEvict));
        assert!(health.readiness().ready);
        health.store_is(None);
        assert!(health.readiness().ready);
    }

    #[test]
    fn a_program_that_cannot_be_run_is_missing_until_it_can() {
        let health = reached(false);
        assert_eq!(
            health.readiness_of(false).json,
            r#"{"degraded":null,"draining":false,"missing":["upstream_cannot_run"],"ready":false}"#
        );
        assert!(health.readiness_of(true).ready);
    }

    #[test]
    fn no_client_comes_before_it_can_be_known() {
        let health = reached(false).behind_keys(true);
        assert!(
            health
                .readiness()
                .json
                .contains(r#""missing":["issuer_keys"],"ready":false"#)
        );
        health.keys_fetched();
        assert!(health.readiness().ready);
    }

    #[test]
    fn who_drains_is_not_ready() {
        let health = reached(false);
        health.draining();
        assert!(!health.readiness().ready);
    }
}
