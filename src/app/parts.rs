//! The parts that serve clients over one store, built from the settings.

use std::sync::Arc;

use rustls::ClientConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::{AppError, line};
use super::listener::ReloadedListener;
use super::live::{LiveParts, quotas};
use super::notify::{self, Webhooks};
use super::opened::Opened;
use super::reload::{Reloaded, ReloadedFiles};
use super::upstream::settings as upstream_settings;
use super::{auth, live};
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::base::clock::Clock;
use crate::base::limit_fill::{
    REQUESTS_PER_CALLER, TASK_BYTES, TASK_BYTES_PER_CALLER, TASKS, TASKS_PER_CALLER,
};
use crate::config::{self, CompanionUse, Config, CredentialUse, NativeTasks, Seal};
use crate::downstream::calls::cancel;
use crate::downstream::calls::registry::CallRegistry;
use crate::downstream::companion::{Companion, WhoHas};
use crate::downstream::events::state::{EventWebhooks, Events};
use crate::downstream::forwarded::ForwardedHeaders;
use crate::downstream::inbound::access::Names;
use crate::downstream::sessions::agreed_versions::AgreedVersions;
use crate::downstream::sessions::hosted;
use crate::downstream::sessions::hosted::lifetimes::Lifetimes;
use crate::downstream::sessions::session_clients::SessionClients;
use crate::downstream::sessions::session_owners::SessionOwners;
use crate::downstream::stand_ins::StandIns;
use crate::downstream::{self, FairShares, Proxy};
use crate::runner::{self, Runner};
use crate::sharing::room::BufferBudget;
use crate::sharing::shares::Shares;
use crate::store::embedded::Embedded;
use crate::store::history::{History, HistoryTerms};
use crate::store::key_value::KeyValue;
use crate::store::ledger::Ledger;
use crate::store::observed::Observed;
use crate::store::patience::StorePatience;
use crate::store::quota::{QuotaFills, Quotas, SumFills};
use crate::store::{Store, record};
use crate::task::id::Incarnation;
use crate::task::state::Reach;
use crate::tls::kept::Kept;
use crate::upstream::wrapped::Upstream;

/// The values that the parts share with the rest of the process.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// The soft limit of open files that the server's processes get. `None`: raincheck's own limit.
    pub(super) open_files: Option<u64>,
    /// `true` if the one client is on raincheck's standard input and output.
    pub(super) is_piped: bool,
    pub(super) room: Arc<BufferBudget>,
    /// The background jobs.
    pub(super) services: TaskTracker,
}

/// The parts that serve clients over one store.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) proxy: Arc<Proxy>,
    pub(super) embedded: Option<Arc<Embedded>>,
    upstream_tls: Option<UpstreamTlsConfig>,
}

impl Parts {
    /// Builds the parts. Nothing is asked of the store. `caller_key` is the store's, so that all replicas know a caller
    /// by the same name.
    pub(super) fn new(
        config: &Config,
        opened: Opened,
        caller_key: &[u8; 32],
        around: &Surroundings,
        stop: &CancellationToken,
    ) -> Result<Self, AppError> {
        let further = config.auth.credential_headers.iter().cloned();
        let callers = Callers::new(caller_key).by_headers(further);
        let auth = auth::authenticator(config, &callers, &opened.clock, around.is_piped)?;
        let (upstream, upstream_tls) = wrap(config, around, &callers)?;
        let settings = runner_settings(config, &opened, &around.room, auth.is_some());
        let (ledger, notes) = kept_in(opened.store, opened.clock, config);
        let (webhooks, outbox) = Webhooks::new(config, &notes)?;
        let callbacks = webhooks.callbacks.clone();
        let ledger = ledger.telling(outbox);
        webhooks.start(&ledger, &around.services, stop);
        let runner = Runner::new(
            ledger,
            notes.clone(),
            Arc::clone(&upstream) as _,
            Incarnation::new(&config.replica.id).reading(record::FORMAT),
            Arc::new(config.rules.clone()),
            settings,
        );
        let room = Arc::clone(&around.room);
        let events = config.events.map(|_| {
            let webhooks = callbacks.map(|callbacks| EventWebhooks::new(callbacks, &notes));
            Arc::new(Events::new(config.store.read_patience, webhooks))
        });
        let proxy = proxy(
            config,
            (&runner, &upstream),
            callers,
            auth,
            room,
            (notes, events),
        );
        Ok(Self {
            proxy,
            embedded: opened.embedded,
            upstream_tls,
        })
    }

    /// Returns the parts that a reload updates. `listener`: the parts of the listener that it changes.
    pub(super) fn reloaded(&self, config: &Config, listener: &ReloadedListener) -> Reloaded {
        let parts = LiveParts {
            proxy: Arc::downgrade(&self.proxy),
            connections: listener.limits.clone(),
            result_bytes_max: config.rules.result_bytes_max(),
        };
        let files = ReloadedFiles {
            listener: listener.tls.clone(),
            upstream: self.upstream_tls.clone(),
            auth: self.proxy.auth.clone(),
        };
        Reloaded { parts, files }
    }

    /// Starts the program, or asks for the server's era, before the first client needs it, until `stop`.
    pub(super) fn start_early(
        &self,
        config: &Config,
        around: &Surroundings,
        stop: &CancellationToken,
    ) {
        let early = start_early(&self.proxy.upstream, config, around.is_piped);
        let services = &around.services;
        services.spawn(stop.clone().run_until_cancelled_owned(early));
    }
}

/// Builds the state that every part of the downstream side needs.
fn proxy(
    config: &Config,
    (runner, upstream): (&Arc<Runner>, &Arc<Upstream>),
    callers: Callers,
    auth: Option<Arc<Authenticator>>,
    room: Arc<BufferBudget>,
    (notes, events): (KeyValue, Option<Arc<Events>>),
) -> Arc<Proxy> {
    let passing = TaskTracker::new();
    Arc::new(Proxy {
        fair: auth.is_some().then(|| fair_shares(&config.limits)),
        held_polls: live::held_polls(&config.limits, auth.is_some()),
        runner: Arc::clone(runner),
        upstream: Arc::clone(upstream),
        callers,
        auth,
        settings: downstream_settings(config),
        live: live::settings(config),
        room,
        closing: CancellationToken::new(),
        passing_ends: CancellationToken::new(),
        calls: CallRegistry::default(),
        cancels: cancel::quotas(),
        answers: hosted::answer_quotas(),
        mailboxes: Arc::default(),
        deliveries: Arc::default(),
        native_tools: Arc::default(),
        agreed: AgreedVersions::default(),
        session_clients: SessionClients::new(&notes, &passing),
        session_owners: SessionOwners::new(&notes, &passing),
        passing,
        kv: notes,
        resumable: Arc::default(),
        session_lifetimes: Lifetimes::default(),
        stand_ins: StandIns::default(),
        events,
        companion: companion(config),
    })
}

fn downstream_settings(config: &Config) -> downstream::ProxySettings {
    let listen = config.listen.clone();
    let public = config.listen.public_url.as_ref();
    downstream::ProxySettings {
        metadata: auth::metadata(config),
        names: Names {
            path: listen.path,
            public_path: public.map(|public| public.path.as_ref().to_owned()),
            hosts: listen.allowed_hosts,
            origins: listen.allowed_origins,
            address: listen.address.ip(),
        },
        way: ForwardedHeaders {
            trusted: listen.trusted_proxies,
            said: config.upstream.forward_headers.clone(),
            over_tls: listen.tls.is_some(),
        },
        trust_annotations: config.upstream.trust_annotations,
        pass_native_tasks: config.upstream.native_tasks == NativeTasks::Pass,
    }
}

/// The ledger of tasks, and the values and logs that are kept beside tasks.
fn kept_in(store: Arc<dyn Store>, clock: Arc<dyn Clock>, config: &Config) -> (Ledger, KeyValue) {
    let patience = StorePatience {
        read: config.store.read_patience,
        create: config.store.create_patience,
    };
    let store: Arc<dyn Store> = Arc::new(Observed::new(store));
    let notes = KeyValue::new(Arc::clone(&store), Arc::clone(&clock), patience);
    let history = config.history.map(|history| {
        let terms = HistoryTerms {
            keep: history.keep,
            entries_max: history.entries_max,
        };
        Arc::new(History::new(Arc::clone(&store), notes.clone(), terms))
    });
    let ledger = Ledger::new(store, clock, patience)
        .within({
            let (of_caller, in_all) = quotas(&config.limits);
            Quotas::new(of_caller, in_all).filling(task_fills())
        })
        .recording(history);
    (ledger, notes)
}

fn task_fills() -> QuotaFills {
    QuotaFills {
        of_caller: SumFills {
            entries: &TASKS_PER_CALLER,
            bytes: &TASK_BYTES_PER_CALLER,
        },
        in_all: SumFills {
            entries: &TASKS,
            bytes: &TASK_BYTES,
        },
    }
}

fn fair_shares(limits: &config::LimitSettings) -> FairShares {
    FairShares {
        requests: Shares::of_limit(limits.requests_per_caller, &REQUESTS_PER_CALLER),
        // One caller leaves half of the room to the others.
        bytes: Shares::new(config::half(limits.buffer_bytes_max)),
    }
}

/// Returns `true` if every client's list contains the companion tools.
fn lists_ours_to_all(config: &Config) -> bool {
    let companion = config.companion.as_ref();
    companion.is_some_and(|wanted| wanted.used == CompanionUse::Always)
}

fn companion(config: &Config) -> Option<Companion> {
    let wanted = config.companion.as_ref()?;
    let who = match wanted.used {
        CompanionUse::Always => WhoHas::All,
        CompanionUse::KnownToNeed => WhoHas::KnownToNeed,
        CompanionUse::AllButKnownNotTo => WhoHas::AllButKnownNotTo,
    };
    Some(Companion::new(&wanted.prefix, who))
}

/// The TLS configuration of connections to the wrapped server, which can be reloaded.
type UpstreamTlsConfig = Arc<Kept<ClientConfig>>;

/// Builds the upstream side, with its TLS configuration.
fn wrap(
    config: &Config,
    around: &Surroundings,
    callers: &Callers,
) -> Result<(Arc<Upstream>, Option<UpstreamTlsConfig>), AppError> {
    let mut settings = upstream_settings(config).map_err(AppError)?;
    // The file is not sealed, and it has the instructions and the name that the server gave.
    if config.store.seal == Seal::Off {
        settings.known_file.clone_from(&config.upstream.known_file);
    }
    // A client that proves nothing can have any number of callers, so a bound for each of them would bound nothing.
    if config.auth.asks() {
        settings.children_of_each_caller = Some(config::half(config.upstream.children_max));
        settings.sessions_of_each_caller = Some(config::half(config.upstream.sessions_max));
    }
    // The file of facts is for callers without credentials, so their caller is part of the settings.
    settings.anonymous = *callers.anonymous().as_bytes();
    if let Some(program) = &mut settings.command {
        program.open_files = around.open_files;
    }
    let upstream = Upstream::new(&settings, around.services.clone());
    let upstream = Arc::new(upstream.map_err(line)?);
    Ok((upstream, settings.tls))
}

/// Starts the program, or asks for the server's era, before the first client needs it. Over a pipe the program is
/// only started: the client's first message shows which era to use with it. With companion tools the era must be
/// known before the first list, because only then the list contains the tools.
fn start_early(
    upstream: &Arc<Upstream>,
    config: &Config,
    is_piped: bool,
) -> impl Future<Output = ()> + use<> {
    let upstream = Arc::clone(upstream);
    let is_asked = !is_piped && (!upstream.has_address() || lists_ours_to_all(config));
    async move { upstream.start_early(is_asked).await }
}

fn runner_settings(
    config: &Config,
    opened: &Opened,
    room: &Arc<BufferBudget>,
    asks: bool,
) -> runner::RunnerSettings {
    runner::RunnerSettings {
        room: Arc::clone(room),
        calls_max: config.limits.calls,
        calls_per_caller: asks.then_some(config.limits.calls_per_caller),
        lease: config.replica.lease,
        exclusive_store: opened.exclusive,
        shared_clock: opened.shared_clock.clone(),
        reach: if config.upstream.shared {
            Reach::Shared
        } else {
            Reach::Instance(config.replica.id.as_str().into())
        },
        renews_credentials: asks && config.upstream.credentials.used == CredentialUse::Forward,
        sealer: opened.sealer.clone(),
        notify: notify::rules(config),
        keeps_requests: config.admin.show_payloads,
        has_subscriptions: config
            .events
            .is_some_and(|events| events.webhooks.is_some()),
    }
}
