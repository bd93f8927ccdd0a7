//! The wiring: builds the parts from the configuration, binds the listener last, and ends the parts in order.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

mod admin;
mod auth;
pub mod diagnose;
mod error;
mod listener;
mod live;
mod missing_program;
mod notify;
mod opened;
mod parts;
mod reload;
mod seal_keys;
mod slots;
mod store;
mod traces;
mod upstream;
mod waiting;

use admin::Admin;
pub use auth::check as check_auth;
pub use error::AppError;
use error::line;
pub use listener::tls_files;
use listener::{Bound, ListenerKind, ReloadedListener, bind};
use parts::{Parts, Surroundings};
pub use reload::Reload;
pub use store::{OtherReplicas, StoreFound, StoreMoved, check as check_store, move_store};
use store::{StoreOpenError, open};
use traces::TraceExport;
pub use traces::check as check_traces;
pub use upstream::settings as upstream_settings;
use waiting::WaitingForStore;

use crate::admin::drain::Drain;
use crate::base::io_reason::io_reason;
use crate::config::Config;
use crate::downstream::Proxy;
use crate::downstream::server::Served;
use crate::downstream::stdio::Lines;
use crate::net::connection_threads::ConnectionThreads;
use crate::platform::service;
use crate::runner::last_words;
use crate::sharing::room::BufferBudget;
use crate::store::embedded::Embedded;

/// The part at the end of `drain.grace` that is reserved for answers on their way to clients: at most this
/// long, and at most an eighth of the grace period.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The time for which connections stay open for slow readers after the calls have ended.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// The time that background jobs may take to stop after they were asked to.
const LAST_SERVICES: Duration = Duration::from_millis(500);

/// All parts, built and bound, not served yet.
#[derive(Debug)]
pub struct App {
    listener: ListenerKind,
    process: Process,
}

/// Everything but the listener.
#[derive(Debug)]
struct Process {
    /// The parts that serve new connections.
    served: watch::Sender<Served>,
    /// The connections that are served now: cancelled, none of them takes a new request.
    stop_serving: CancellationToken,
    /// The store was not there yet: what replaces the parts when it is.
    waiting: Option<WaitingForStore>,
    embedded: Option<Arc<Embedded>>,
    admin: Admin,
    drain: Drain,
    /// The time for which the process serves as usual after the drain begins.
    delay: Duration,
    /// The time that the drain may take after `delay`.
    grace: Duration,
    reload: Reload,
    around: Surroundings,
    stop: CancellationToken,
    traces: TraceExport,
    /// Calls may outlive their connections, so the threads end after everything that calls need.
    threads: Arc<ConnectionThreads>,
}

impl App {
    /// Opens the store, builds the parts and binds the listener. `open_files` is the soft limit of open files
    /// that the server's processes get; `None`: raincheck's own limit.
    pub async fn build(config: Config, open_files: Option<u64>) -> Result<Self, AppError> {
        Self::behind(None, config, open_files).await
    }

    /// Builds the parts for one client on raincheck's standard input and output. `ended` is cancelled when
    /// the client closes its side and has its answers, `patience` later at the latest.
    pub async fn build_stdio(
        config: Config,
        open_files: Option<u64>,
        ended: CancellationToken,
        patience: Duration,
    ) -> Result<Self, AppError> {
        Self::behind(Some(Lines::new(ended, patience)), config, open_files).await
    }

    async fn behind(
        lines: Option<Lines>,
        config: Config,
        open_files: Option<u64>,
    ) -> Result<Self, AppError> {
        // Refused before anything is opened, so that a start that cannot succeed leaves no files behind.
        missing_program::refuse_missing_program(&config.upstream.server)?;
        let stop = CancellationToken::new();
        let traces = TraceExport::begin(&config)?;
        // Parts that are built later share the budget and the jobs with the first ones.
        let around = Surroundings {
            open_files,
            is_piped: lines.is_some(),
            room: BufferBudget::new(config.limits.buffer_bytes_max),
            services: TaskTracker::new(),
        };
        // The listener is bound after this, so that no client connects to a process whose store refuses it.
        let (parts, missing) = first_parts(&config, &around, &stop).await?;
        let mut threads = Arc::default();
        let (listener, reloaded) = if let Some(lines) = lines {
            (ListenerKind::Stdio(lines), ReloadedListener::default())
        } else {
            threads = connection_threads(&config)?;
            let Bound { server, reloaded } = bind(&config, &threads)?;
            (ListenerKind::Http(server), reloaded)
        };
        let reload = Reload::new(&config, parts.reloaded(&config, &reloaded));
        let drain = Drain::default();
        let admin = Admin::bind(&config, &parts.proxy, &drain, &reload).await?;
        let stop_serving = CancellationToken::new();
        let (embedded, proxy) = (parts.embedded, parts.proxy);
        let served = watch::Sender::new(Served {
            proxy: Arc::clone(&proxy),
            // A child, because parts over a store that comes later replace these alone, and a drain ends all of them.
            stop: stop_serving.child_token(),
        });
        let jobs = admin.watch_server(Arc::clone(&proxy.upstream), &config);
        around
            .services
            .spawn(stop.clone().run_until_cancelled_owned(jobs));
        let waiting = missing.map(|missing| WaitingForStore {
            missing,
            listener: reloaded,
            early: stop.child_token(),
        });
        match &waiting {
            None => admin.keep(&config, &proxy, &around.services, &stop),
            Some(waiting) => admin.miss_store(&proxy, &around.services, &waiting.early),
        }
        let process = Process {
            served,
            stop_serving,
            waiting,
            embedded,
            admin,
            drain,
            delay: config.drain.delay,
            grace: config.drain.grace,
            reload,
            around,
            stop,
            traces,
            threads,
        };
        Ok(Self { listener, process })
    }

    /// The files that can be read anew while the process serves.
    pub fn reload(&self) -> Reload {
        self.process.reload.clone()
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
        self.process.admin.probes_address()
    }

    /// Where operators are answered, if they are.
    pub fn operators_address(&self) -> Option<SocketAddr> {
        self.process.admin.operators_address()
    }

    /// Serves until `shutdown` or a GET asks for the drain, then drains: goes on as usual for `drain.delay`,
    /// closes the listener, ends listen streams, waits for calls, fails the rest, within `drain.grace`.
    /// Returns when the drain is done and `shutdown` was cancelled. After a drain that a request asked for, raincheck
    /// answers probes until `shutdown` or for another `drain.grace`, and then ends, because a process that is never
    /// stopped would live on without serving a client. `Err`: a store that raincheck waited for refuses it.
    pub async fn serve(mut self, shutdown: CancellationToken) -> Result<(), AppError> {
        let end = CancellationToken::new();
        let answering = self.process.admin.take_listeners().serve(&end);
        let serving = async {
            let patience = self.process.grace;
            let served = self.process.serve_and_drain(self.listener, &shutdown).await;
            if served.is_ok() && timeout(patience, shutdown.cancelled()).await.is_err() {
                info!("no signal came after the drain");
            }
            end.cancel();
            served
        };
        // Probes are answered during the drain, too, so both run together.
        let (served, ()) = tokio::join!(serving, answering);
        info!("stopped");
        served
    }
}

impl Process {
    async fn serve_and_drain(
        self,
        listener: ListenerKind,
        shutdown: &CancellationToken,
    ) -> Result<(), AppError> {
        let (close, stop) = (CancellationToken::new(), self.stop_serving.clone());
        let serving = listener.serve(
            self.served.subscribe(),
            close.clone(),
            stop.clone(),
            LAST_BYTES,
        );
        tokio::pin!(serving);
        let mut early = None;
        let served = tokio::select! {
            () = &mut serving => Ok(()),
            () = shutdown.cancelled() => Ok(()),
            () = self.drain.asked() => Ok(()),
            refused = self.replace_when_open(&mut early) => Err(refused),
        };
        info!("draining");
        service::report("STOPPING=1\nSTATUS=draining: calls that run are waited for");
        self.admin.health.draining();
        let _ = timeout(self.delay, &mut serving).await;
        let proxy = Arc::clone(&self.served.borrow().proxy);

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
            let before = async {
                if let Some(early) = &early {
                    end_calls(early, patience).await;
                }
            };
            tokio::join!(end_calls(&proxy, patience), before);
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
        let _ = timeout_at(from + self.grace, stop_server(&proxy, early.as_deref())).await;
        // This also closes the idle connections to the server, which nothing else would close.
        drop((proxy, early, self.served));
        self.around.services.close();
        let _ = timeout(LAST_SERVICES, self.around.services.wait()).await;
        // What still runs there ends, so that its spans are among the last.
        drop(self.threads);
        self.traces.finish().await;
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
        served
    }

    /// Waits for a store that was not there at the start. Then other parts serve new connections, and the parts without a
    /// store, which go to `early`, end as those of a replica that is replaced: their connections close after the request
    /// that is under way, and their calls go on. Returns only if the store refuses raincheck.
    async fn replace_when_open(&self, early: &mut Option<Arc<Proxy>>) -> AppError {
        let Some(waiting) = &self.waiting else {
            // The store was there at the start, so this branch of the caller's select must never win.
            return pending().await;
        };
        let parts = match waiting.parts(&self.reload, &self.around, &self.stop).await {
            Ok(parts) => parts,
            Err(refused) => return refused,
        };
        let config = self.reload.running();
        let services = &self.around.services;
        parts.start_early(&config, &self.around, &self.stop);
        self.admin.serve_over(&parts.proxy);
        self.admin.keep(&config, &parts.proxy, services, &self.stop);
        let before = self.served.send_replace(Served {
            proxy: parts.proxy,
            stop: self.stop_serving.child_token(),
        });
        info!("the store is there; calls become tasks");
        // `keep` has started the same jobs for the new parts.
        waiting.early.cancel();
        // From here on, a drain that drops this future must end these parts, too.
        *early = Some(Arc::clone(&before.proxy));
        // Calls are refused before the streams end, so that a client that comes back on an open connection begins none
        // here.
        before.proxy.runner.refuse();
        before.proxy.closing.cancel();
        before.stop.cancel();
        // Each call ends by itself, because its rule bounds how long it may take.
        end_calls(&before.proxy, Duration::MAX).await;
        // The program of these parts stops after their calls, because the answers come from it.
        before.proxy.upstream.stop().await;
        *early = None;
        drop(before);
        // A return would mean that the store refuses raincheck, and would begin the drain.
        pending().await
    }
}

/// One HTTP/2 connection may carry the requests of all clients, and all threads must share its work.
fn connection_threads(config: &Config) -> Result<Arc<ConnectionThreads>, AppError> {
    if config.listen.h2c {
        return Ok(Arc::default());
    }
    let started = ConnectionThreads::start();
    let threads = started
        .map_err(|error| AppError(format!("no threads for connections: {}", io_reason(&error))))?;
    Ok(Arc::new(threads))
}

/// The parts to begin with, and why the store is missing, if they have none.
async fn first_parts(
    config: &Config,
    around: &Surroundings,
    stop: &CancellationToken,
) -> Result<(Parts, Option<AppError>), AppError> {
    let may_wait = !config.store.required_at_start && !around.is_piped;
    match open(config, &around.services, stop).await {
        Ok((opened, key)) => {
            let parts = Parts::new(config, opened, &key, around, stop)?;
            parts.start_early(config, around, stop);
            if may_wait {
                // The store may have gone away again since it was opened, and that must not end this process.
                parts.proxy.runner.start_without_store().await;
            } else {
                parts.proxy.runner.start().await.map_err(line)?;
            }
            Ok((parts, None))
        }
        Err(StoreOpenError::Away(missing)) if may_wait => {
            let (opened, key) = store::absent(config)?;
            let parts = Parts::new(config, opened, &key, around, stop)?;
            parts.start_early(config, around, stop);
            parts.proxy.runner.has_no_store();
            Ok((parts, Some(missing)))
        }
        Err(StoreOpenError::Away(error) | StoreOpenError::Refused(error)) => Err(error),
    }
}

/// Waits for the calls and the answers of these parts, and ends those that take longer than `patience`.
async fn end_calls(proxy: &Proxy, patience: Duration) {
    // A tracker counts as empty only after it was closed.
    proxy.passing.close();
    let passed = async {
        let last = last_words(patience);
        let in_time = timeout(patience.saturating_sub(last), proxy.passing.wait());
        if in_time.await.is_err() {
            // The calls that pass end with an error of raincheck now, in place of a stream that breaks off.
            proxy.passing_ends.cancel();
            let _ = timeout(last, proxy.passing.wait()).await;
        }
    };
    tokio::join!(proxy.runner.drain(patience, &proxy.passing), passed);
}

async fn stop_server(proxy: &Proxy, early: Option<&Proxy>) {
    let before = async {
        if let Some(early) = early {
            early.upstream.stop().await;
        }
    };
    tokio::join!(proxy.upstream.stop(), before);
}
