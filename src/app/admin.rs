//! The listeners for orchestrators and operators, and the health that they report.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::diagnose::diagnose;
use super::error::AppError;
use super::reload::Reload;
use super::{auth, seal_keys};
use crate::admin::admit::{OperatorToken, Rights};
use crate::admin::degraded::Degraded;
use crate::admin::drain::Drain;
use crate::admin::health::Health;
use crate::admin::operator::OperatorSettings;
use crate::admin::token::Token;
use crate::admin::{Listener, operator, probes};
use crate::base::io_reason::io_reason;
use crate::config::{AdminSettings, Config, OperatorRole, Secret};
use crate::downstream::Proxy;
use crate::runner::Runner;
use crate::store::StoreHealth;
use crate::store::kv::{Kind, Name};
use crate::store::observed::ROOM_BYTES;
use crate::telemetry::repeats::tell_what_was_left_out;
use crate::telemetry::{limits, operations, polls, reloads};
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// The interval at which the store's own findings are read.
const STORE_HEALTH: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Admin {
    pub(super) health: Arc<Health>,
    /// The runner whose tasks operators see.
    runner: watch::Sender<Arc<Runner>>,
    listeners: Listeners,
}

/// Bound, and not served yet.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    probes: Option<Listener>,
    operators: Option<Listener>,
}

impl Admin {
    pub(super) async fn bind(
        config: &Config,
        proxy: &Arc<Proxy>,
        drain: &Drain,
        reload: &Reload,
    ) -> Result<Self, AppError> {
        let health = Health::new(config.admin.ready_needs_store);
        let health = Arc::new(health.behind_keys(proxy.auth.is_some()));
        health.in_front_of(&proxy.upstream);
        limits::begin();
        reloads::begin();
        let runner = watch::Sender::new(Arc::clone(&proxy.runner));
        let mut listeners = Listeners::default();
        if let Some(address) = config.admin.probes {
            let token = config.drain.token.as_ref().map(token);
            let bound = probes::bind(address, Arc::clone(&health), drain.clone(), token).await;
            listeners.probes = Some(bound.map_err(not_bound("admin.probes", address))?);
        }
        if let Some(address) = config.admin.listen {
            // Durations can be read at this listener only, and their measurement costs each request.
            operations::measure();
            let settings = OperatorSettings {
                address,
                operators: operators(&config.admin),
                show_payloads: config.admin.show_payloads,
                reload: Arc::new(reload.clone()),
            };
            let (health, drain) = (Arc::clone(&health), drain.clone());
            let bound = operator::bind(settings, health, drain, runner.subscribe()).await;
            listeners.operators = Some(bound.map_err(not_bound("admin.listen", address))?);
        }
        Ok(Self {
            health,
            runner,
            listeners,
        })
    }

    /// From now on these parts serve.
    pub(super) fn serve_over(&self, proxy: &Arc<Proxy>) {
        self.health.in_front_of(&proxy.upstream);
        self.runner.send_replace(Arc::clone(&proxy.runner));
    }

    /// Asks the server until it answers, and keeps the log short.
    pub(super) fn watch_server(
        &self,
        upstream: Arc<Upstream>,
        config: &Config,
    ) -> impl Future<Output = ()> + use<> {
        let config = config.clone();
        let health = Arc::clone(&self.health);
        // Without a listener nothing reads the health, so the server need not be asked again and again.
        let is_asked = self.listeners.probes.is_some() || self.listeners.operators.is_some();
        let server = async move {
            let describe =
                |error: &DiscoverError| diagnose(error, upstream.obstacle().as_ref(), &config);
            // A program is not started for a health that has no reader.
            if is_asked || upstream.has_address() {
                health.await_upstream(&upstream, &describe).await;
            }
            health.watch_upstream(is_asked, &describe).await;
        };
        async {
            tokio::join!(server, tell_what_was_left_out());
        }
    }

    /// Keeps what the process knows of the store and of the issuers of tokens, until `stop`.
    pub(super) fn keep(
        &self,
        config: &Config,
        proxy: &Proxy,
        services: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let keys = auth::keep_keys(proxy.auth.clone(), Arc::clone(&self.health));
        let comparing = seal_keys::tell_if_unequal(proxy.kv.clone(), config.store.clone());
        let store = self.watch_store(&proxy.runner);
        let jobs = async { tokio::join!(keys, comparing, store) };
        services.spawn(stop.clone().run_until_cancelled_owned(jobs));
    }

    /// The same without a store, until `stop`.
    pub(super) fn miss_store(
        &self,
        proxy: &Proxy,
        services: &TaskTracker,
        stop: &CancellationToken,
    ) {
        self.health.store_is(Some(Degraded::StoreAway));
        let keys = auth::keep_keys(proxy.auth.clone(), Arc::clone(&self.health));
        services.spawn(stop.clone().run_until_cancelled_owned(keys));
    }

    fn watch_store(&self, runner: &Runner) -> impl Future<Output = ()> + use<> {
        let mut answers = runner.store_answers();
        let ledger = runner.ledger().clone();
        let health = Arc::clone(&self.health);
        async move {
            loop {
                // Marked as seen before the health is read: a change after that ends the pause below at once.
                let away = !*answers.borrow_and_update();
                health.store_is(match (away, ledger.store().health()) {
                    (true, _) => Some(Degraded::StoreAway),
                    (false, StoreHealth::Degraded(_)) => Some(Degraded::StoreMayEvict),
                    (false, StoreHealth::Full) => Some(Degraded::StoreFull),
                    (false, StoreHealth::Good) => None,
                });
                polls::expire(ledger.now_ms());
                if ledger.store().health() == StoreHealth::Full {
                    // A write that succeeds shows that there is room again, if no client makes one.
                    let name = Name::of(Kind::Claim, &["room"]);
                    let expires_ms = ledger.now_ms() + 1000;
                    // The value is large, because a small one finds room also in a full store. A failure leaves the
                    // state as it is.
                    let _ = ledger
                        .store()
                        .put(name, vec![0; ROOM_BYTES].into(), expires_ms)
                        .await;
                }
                // An outage is told at once; what the store found out by itself, a little later.
                if let Ok(Err(_)) = timeout(STORE_HEALTH, answers.changed()).await {
                    return;
                }
            }
        }
    }

    pub(super) fn probes_address(&self) -> Option<SocketAddr> {
        self.listeners.probes.as_ref()?.address().ok()
    }

    pub(super) fn operators_address(&self) -> Option<SocketAddr> {
        self.listeners.operators.as_ref()?.address().ok()
    }

    pub(super) fn take_listeners(&mut self) -> Listeners {
        std::mem::take(&mut self.listeners)
    }
}

impl Listeners {
    /// Answers until `end`.
    pub(super) async fn serve(self, end: &CancellationToken) {
        tokio::join!(serve(self.probes, end), serve(self.operators, end));
    }
}

async fn serve(listener: Option<Listener>, end: &CancellationToken) {
    if let Some(listener) = listener {
        listener.serve(end.clone()).await;
    }
}

fn operators(settings: &AdminSettings) -> Vec<OperatorToken> {
    let nameless = settings.token.as_ref().map(|secret| OperatorToken {
        token: token(secret),
        rights: Rights {
            name: None,
            may_act: true,
        },
    });
    let named = settings.operators.iter().map(|operator| OperatorToken {
        token: token(&operator.token),
        rights: Rights {
            name: Some(Arc::clone(&operator.name)),
            may_act: operator.role == OperatorRole::Act,
        },
    });
    nameless.into_iter().chain(named).collect()
}

fn token(secret: &Secret) -> Token {
    Token::new(secret.expose())
}

fn not_bound(setting: &str, address: SocketAddr) -> impl FnOnce(std::io::Error) -> AppError {
    move |error| {
        AppError(format!(
            "{setting}: {address} cannot be listened on: {}",
            io_reason(&error)
        ))
    }
}
