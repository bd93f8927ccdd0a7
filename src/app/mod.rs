//! The wiring: builds the parts from the configuration, binds the listener last, and ends the parts in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

mod admin;
mod auth;
mod error;
mod listener;
mod live;
mod opened;
mod reach;
mod reload;
mod seal_keys;
mod slots;
mod store;
mod traces;
mod upstream;

use admin::Admin;
pub use auth::check as check_auth;
pub use error::AppError;
use error::line;
pub use listener::tls_files;
use listener::{ListenerKind, bind};
use live::{LiveParts, quotas};
use opened::Opened;
pub use reload::Reload;
use reload::ReloadedFiles;
use store::open;
pub use store::{OtherReplicas, StoreFound, check as check_store};
use traces::Traces;
pub use traces::check as check_traces;
pub use upstream::settings as upstream_settings;

use crate::admin::drain::Drain;
use crate::auth::authenticator::Authenticator;
use crate::auth::callers::Callers;
use crate::clock::Clock;
use crate::config::{self, CompanionUse, Config, NativeTasks, Seal};
use crate::downstream::calls::registry::CallRegistry;
use crate::downstream::companion::{Companion, WhoHas};
use crate::downstream::forwarded::ForwardedHeaders;
use crate::downstream::inbound::access::Names;
use crate::downstream::sessions::agreed_versions::AgreedVersions;
use crate::downstream::sessions::ours::OurSessions;
use crate::downstream::sessions::session_clients::SessionClients;
use crate::downstream::stand_ins::StandIns;
use crate::downstream::stdio::Lines;
use crate::downstream::{self, FairShares, Proxy};
use crate::room::BufferBudget;
use crate::runner::{self, Runner};
use crate::shares::Shares;
use crate::store::embedded::Embedded;
use crate::store::key_value::KeyValue;
use crate::store::ledger::Ledger;
use crate::store::observed::Observed;
use crate::store::patience::StorePatience;
use crate::store::quota::Quotas;
use crate::store::{Store, record};
use crate::task::id::Incarnation;
use crate::task::state::Reach;
use crate::tls::kept::Kept;
use crate::upstream::wrapped::Upstream;

/// The part at the end of `drain.grace` that is reserved for answers on their way to clients: at most this
/// long, and at most an eighth of the grace period.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How long connections stay open for slow readers after the calls have ended.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// How long background jobs may take to stop after they were told to.
const LAST_SERVICES: Duration = Duration::from_millis(500);

/// All parts, built and bound, not served yet.
#[derive(Debug)]
pub struct App {
    proxy: Arc<Proxy>,
    listener: ListenerKind,
    embedded: Option<Arc<Embedded>>,
    admin: Admin,
    drain: Drain,
    /// How long the process serves as usual after the drain begins.
    delay: Duration,
    /// How long the drain may take after `delay`.
    grace: Duration,
    reload: Reload,
    /// The background jobs of the parts.
    services: TaskTracker,
    stop: CancellationToken,
    traces: Traces,
}

impl App {
    /// Opens the store, builds the parts and binds the listener. `open_files` is the soft limit of open files
    /// that the server's processes get; `None`: raincheck's own limit.
    pub async fn build(config: Config, open_files: Option<u64>) -> Result<Self, AppError> {
        Self::behind(None, config, open_files).await
    }

    /// Builds the parts for one client on raincheck's standard input and output. `ended` is cancelled when
    /// the client closes its side.
    pub async fn build_stdio(
        config: Config,
        open_files: Option<u64>,
        ended: CancellationToken,
    ) -> Result<Self, AppError> {
        Self::behind(Some(Lines::new(ended)), config, open_files).await
    }

    async fn behind(
        lines: Option<Lines>,
        config: Config,
        open_files: Option<u64>,
    ) -> Result<Self, AppError> {
        let (services, stop) = (TaskTracker::new(), CancellationToken::new());
        let traces = Traces::begin(&config)?;
        let opened = open(&config, &services, &stop).await?;
        let key = opened.store.caller_key().await.map_err(line)?;
        let further = config.auth.credential_headers.iter().cloned();
        let callers = Callers::new(&key).by_headers(further);
        let auth = auth::authenticator(&config, &callers, &opened.clock, lines.is_some())?;
        let (upstream, upstream_tls) = wrap(&config, open_files, &callers, &services)?;
        let early = start_early(&upstream, &config, lines.is_some());
        services.spawn(stop.clone().run_until_cancelled_owned(early));
        let room = BufferBudget::new(config.limits.buffer_bytes_max);
        let settings = runner_settings(&config, &opened, &room, auth.is_some());
        let (ledger, notes) = kept_in(opened.store, opened.clock, &config);
        let runner = Runner::new(
            ledger,
            notes.clone(),
            Arc::clone(&upstream) as _,
            Incarnation::new(&config.replica.id).reading(record::FORMAT),
            Arc::new(config.rules.clone()),
            settings,
        );
        runner.start().await.map_err(line)?;
        let (listener, connections, listener_tls) = match lines {
            Some(lines) => (ListenerKind::Stdio(lines), None, None),
            None => bind(&config).await?,
        };
        let comparing = seal_keys::tell_if_unequal(notes.clone(), config.store.clone());
        let proxy = proxy(
            &config,
            (&runner, &upstream),
            callers,
            auth.clone(),
            room,
            notes,
        );
        let parts = LiveParts {
            proxy: Arc::downgrade(&proxy),
            connections,
            result_bytes_max: config.rules.result_bytes_max(),
        };
        let files = ReloadedFiles {
            listener: listener_tls,
            upstream: upstream_tls,
            auth: auth.clone(),
        };
        let reload = Reload::new(&config, parts, files);
        let drain = Drain::default();
        let admin =
            Admin::bind(&config, &upstream, &drain, &runner, &reload, auth.is_some()).await?;
        let keeping = auth::keep_keys(auth.clone(), Arc::clone(&admin.health));
        let watching = admin.watch(Arc::clone(&upstream), &runner);
        let background = async { tokio::join!(keeping, comparing, watching) };
        services.spawn(stop.clone().run_until_cancelled_owned(background));
        Ok(Self {
            proxy,
            listener,
            embedded: opened.embedded,
            admin,
            drain,
            delay: config.drain.delay,
            grace: config.drain.grace,
            reload,
            services,
            stop,
            traces,
        })
    }

    /// The files that can be read anew while the process serves.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// The address of the listener, with the port that the system chose if the configured port is 0.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.listener {
            ListenerKind::Http(server) => server.address().ok(),
            ListenerKind::Stdio(_) => None,
        }
    }

    /// The address of the probe listener, if there is one.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.admin.probes_address()
    }

    /// Where operators are answered, if they are.
    pub fn operators_address(&self) -> Option<SocketAddr> {
        self.admin.operators_address()
    }

    /// Serves until `shutdown` or a GET asks for the drain, then drains: goes on as usual for `drain.delay`,
    /// closes the listener, ends listen streams, waits for calls, fails the rest, within `drain.grace`.
    /// Returns when the drain is done and `shutdown` was cancelled. After a drain that a request asked for, raincheck
    /// answers probes until `shutdown` or for another `drain.grace`, and then ends, because a process that is never
    /// stopped would live on without serving a client.
    pub async fn serve(mut self, shutdown: CancellationToken) {
        let end = CancellationToken::new();
        let answering = self.admin.take_listeners().serve(&end);
        let serving = async {
            let patience = self.grace;
            self.serve_and_drain(&shutdown).await;
            if timeout(patience, shutdown.cancelled()).await.is_err() {
                info!("no signal came after the drain");
            }
            end.cancel();
        };
        tokio::join!(serving, answering);
        info!("stopped");
    }

    async fn serve_and_drain(self, shutdown: &CancellationToken) {
        let Self {
            proxy, listener, ..
        } = self;
        let (close, stop) = (CancellationToken::new(), CancellationToken::new());
        let serving = listener.serve(Arc::clone(&proxy), close.clone(), stop.clone(), LAST_BYTES);
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = shutdown.cancelled() => {}
            () = self.drain.asked() => {}
        }
        info!("draining");
        self.admin.health.draining();
        let _ = timeout(self.delay, &mut serving).await;

        // New calls are refused first: a client that finds the listener closed must not begin a call on an
        // open connection.
        proxy.runner.refuse();
        close.cancel();
        // The listener closes before streams end, so that a client that reconnects does not reach this
        // process.
        let _ = timeout(Duration::ZERO, &mut serving).await;
        proxy.closing.cancel();
        let from = Instant::now();
        // The time that a program needs to stop is part of the grace period.
        let ending = proxy.upstream.stop_patience().min(self.grace / 4);
        let grace = self.grace.saturating_sub(ending);
        // The rest of the grace period is reserved for answers on their way to clients.
        let patience = grace.saturating_sub(LAST_ANSWERS.min(grace / 8));
        let drained = async {
            proxy.passing.close();
            let passed = timeout(patience, proxy.passing.wait());
            let _ = tokio::join!(proxy.runner.drain(patience), passed);
            self.drain.finish();
            stop.cancel();
        };
        let settled = async { tokio::join!(serving, drained) };
        if timeout_at(from + grace, settled).await.is_err() {
            warn!("drain.grace is over; the calls and answers that are left end with the process");
        }
        self.drain.finish();
        self.stop.cancel();
        // The program stops after the last bytes went out, because answers to clients come from its
        // processes.
        let _ = timeout_at(from + self.grace, proxy.upstream.stop()).await;
        // This also closes the idle connections to the server, which nothing else would close.
        drop(proxy);
        self.services.close();
        let _ = timeout(LAST_SERVICES, self.services.wait()).await;
        self.traces.finish().await;
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
    }
}

/// What every part of the downstream side needs.
fn proxy(
    config: &Config,
    (runner, upstream): (&Arc<Runner>, &Arc<Upstream>),
    callers: Callers,
    auth: Option<Arc<Authenticator>>,
    room: Arc<BufferBudget>,
    notes: KeyValue,
) -> Arc<Proxy> {
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
        passing: TaskTracker::new(),
        calls: CallRegistry::default(),
        mailboxes: Arc::default(),
        kv: notes,
        deliveries: Arc::default(),
        native_tools: Arc::default(),
        agreed: AgreedVersions::default(),
        session_clients: SessionClients::default(),
        resumable: Arc::default(),
        our_sessions: OurSessions::default(),
        stand_ins: StandIns::default(),
        companion: companion(config),
    })
}

fn downstream_settings(config: &Config) -> downstream::Settings {
    let listen = config.listen.clone();
    let public = config.listen.public_url.as_ref();
    downstream::Settings {
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
    let store: Arc<dyn Store> = Arc::new(Observed(store));
    let notes = KeyValue::new(Arc::clone(&store), Arc::clone(&clock), patience);
    let ledger = Ledger::new(store, clock, patience).within({
        let (of_caller, in_all) = quotas(&config.limits);
        Quotas::new(of_caller, in_all)
    });
    (ledger, notes)
}

fn fair_shares(limits: &config::LimitSettings) -> FairShares {
    FairShares {
        requests: Shares::new(limits.requests_per_caller),
        // One caller leaves half of the room to the others.
        bytes: Shares::new(config::half(limits.buffer_bytes_max)),
    }
}

/// Whether every client's list has the companion tools.
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
    open_files: Option<u64>,
    callers: &Callers,
    services: &TaskTracker,
) -> Result<(Arc<Upstream>, Option<UpstreamTlsConfig>), AppError> {
    let mut settings = upstream_settings(config).map_err(AppError)?;
    if config.store.seal == Seal::Off {
        settings.known_file.clone_from(&config.upstream.known_file);
    }
    if config.auth.asks() {
        settings.children_of_each_caller = Some(config::half(config.upstream.children_max));
        settings.sessions_of_each_caller = Some(config::half(config.upstream.sessions_max));
    }
    settings.anonymous = *callers.anonymous().as_bytes();
    if let Some(program) = &mut settings.command {
        program.open_files = open_files;
    }
    let upstream = Upstream::new(&settings, services.clone());
    let upstream = Arc::new(upstream.map_err(line)?);
    Ok((upstream, settings.tls))
}

/// Starts the program, or asks for the server's era, before the first client needs it. Over a pipe the program is
/// started only: the client's first message says which era to speak to it. With companion tools the era must be
/// known before the first list, because only then the list has the tools.
fn start_early(
    upstream: &Arc<Upstream>,
    config: &Config,
    is_piped: bool,
) -> impl Future<Output = ()> + use<> {
    let upstream = Arc::clone(upstream);
    let is_asked = !is_piped && (!upstream.has_address() || lists_ours_to_all(config));
    // Where there is an admin or a probe listener, the health asks the server, and says so.
    let is_watched = config.admin.probes.is_some() || config.admin.listen.is_some();
    let server = (!is_piped && !is_watched).then(|| config.upstream.server.clone());
    let patience = config.upstream.connect_timeout;
    async move {
        let telling = async {
            if let Some(server) = server {
                reach::tell_if_away(server, patience).await;
            }
        };
        tokio::join!(telling, upstream.start_early(is_asked));
    }
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
        sealer: opened.sealer.clone(),
    }
}
