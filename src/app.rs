//! The wiring: builds the parts from the configuration, binds last, ends in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::clock::{Anchored, Clock, System};
use crate::config::{self, Config, EraChoice, Location, Secret, SessionUse, Wrapped};
use crate::downstream::auth::Callers;
use crate::downstream::route::Names;
use crate::downstream::server::{self, Server};
use crate::downstream::{self, Front};
use crate::mcp::version::Era;
use crate::runner::{self, Runner};
use crate::store::Store;
use crate::store::embedded::Embedded;
use crate::store::ledger::{Ledger, Patience};
use crate::store::memory::Memory;
use crate::store::redis::{Namespace, Options, Redis};
use crate::task::id::Incarnation;
use crate::tls;
use crate::upstream::stdio::Program;
use crate::upstream::wrapped::{SessionMode, Settings as UpstreamSettings, Upstream};

/// What stays open after the calls have ended: answers on their way to clients.
const LAST_BYTES: Duration = Duration::from_secs(3);

/// Everything, built and bound, not served yet.
#[derive(Debug)]
pub struct App {
    front: Arc<Front>,
    server: Server,
    address: SocketAddr,
    embedded: Option<Arc<Embedded>>,
    drain: config::Drain,
    /// What the parts run in the background.
    services: TaskTracker,
    stop: CancellationToken,
}

/// Why raincheck cannot start. One line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AppError(String);

impl App {
    /// Opens the store, builds the parts and binds the listener.
    pub async fn build(config: Config) -> Result<Self, AppError> {
        let (services, stop) = (TaskTracker::new(), CancellationToken::new());
        let opened = open(&config, &services, &stop).await?;
        let key = opened.store.caller_key().await.map_err(line)?;
        let upstream = Upstream::new(&upstream_settings(&config), services.clone());
        let upstream = Arc::new(upstream.map_err(line)?);
        if !upstream.speaks_http() {
            // `npx` may have to fetch the server first: nobody should have to wait for that.
            let early = Arc::clone(&upstream);
            services.spawn(async move { early.era(None).await.map(drop) });
        }
        let rules = Arc::new(config.rules);
        let patience = Patience {
            read: config.store.read_patience,
            create: config.store.create_patience,
        };
        let ledger = Ledger::new(opened.store, opened.clock, patience);
        let runner = Runner::new(
            ledger,
            Arc::clone(&upstream),
            Incarnation::new(&config.replica.id),
            Arc::clone(&rules),
            runner::Settings {
                calls_max: config.limits.calls,
                lease: config.replica.lease,
                exclusive_store: opened.exclusive,
                shared_clock: opened.shared_clock,
            },
        );
        runner.start().await.map_err(line)?;
        let server = bind(&config.listen, &config.limits).await?;
        let address = server.address().map_err(line)?;
        let front = Front {
            runner,
            upstream,
            rules,
            callers: Callers::new(&key),
            settings: downstream::Settings {
                names: Names {
                    path: config.listen.path,
                    hosts: config.listen.allowed_hosts,
                    origins: config.listen.allowed_origins,
                    address: config.listen.address.ip(),
                },
                body_bytes_max: config.limits.body_bytes_max,
                listen_task_ids_max: config.limits.listen_task_ids,
            },
            closing: CancellationToken::new(),
        };
        Ok(Self {
            front: Arc::new(front),
            server,
            address,
            embedded: opened.embedded,
            drain: config.drain,
            services,
            stop,
        })
    }

    /// Where clients reach it, with the port that the system chose if none was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then drains: goes on as usual for `drain.delay`, closes the
    /// listener, ends listen streams, waits for calls up to `drain.grace`, fails the rest.
    pub async fn serve(self, shutdown: CancellationToken) {
        let (close, stop) = (CancellationToken::new(), CancellationToken::new());
        let front = Arc::clone(&self.front);
        let serving =
            self.server
                .serve(Arc::clone(&front), close.clone(), stop.clone(), LAST_BYTES);
        let draining = async {
            shutdown.cancelled().await;
            info!("draining");
            tokio::time::sleep(self.drain.delay).await;
            close.cancel();
            self.front.closing.cancel();
            self.front.runner.drain(self.drain.grace).await;
            stop.cancel();
        };
        tokio::join!(serving, draining);
        // After the last bytes: what clients of a program were told came from its processes.
        front.upstream.stop().await;
        self.stop.cancel();
        self.services.close();
        let _ = tokio::time::timeout(LAST_BYTES, self.services.wait()).await;
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
        info!("stopped");
    }
}

struct Opened {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The clock that follows the store's own, where the store has one.
    shared_clock: Option<Arc<Anchored>>,
    /// Only one process can hold this store.
    exclusive: bool,
    embedded: Option<Arc<Embedded>>,
}

async fn open(
    config: &Config,
    services: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Opened, AppError> {
    let system: Arc<dyn Clock> = Arc::new(System);
    match &config.store.location {
        Location::Memory => Ok(Opened {
            store: Arc::new(Memory::new(Arc::clone(&system))),
            clock: system,
            shared_clock: None,
            exclusive: true,
            embedded: None,
        }),
        Location::Embedded(path) => {
            let store = Embedded::open(path, Arc::clone(&system)).map_err(line)?;
            let store = Arc::new(store);
            Ok(Opened {
                store: Arc::clone(&store) as Arc<dyn Store>,
                clock: system,
                shared_clock: None,
                exclusive: true,
                embedded: Some(store),
            })
        }
        Location::Redis { url, namespace } => {
            let namespace = Namespace::parse(namespace).ok_or_else(|| {
                AppError("store.namespace: use 1 to 64 of A-Z a-z 0-9 . _ -".into())
            })?;
            let options = Options {
                allow_eviction: config.store.allow_eviction,
                serves: Some(config.upstream.server.identity()),
                ..Options::new(url.expose(), namespace)
            };
            let store = Redis::open(&options, services, stop).await.map_err(line)?;
            let now_ms = store
                .beat(None, config.replica.lease)
                .await
                .map_err(line)?
                .now_ms;
            let clock = Arc::new(Anchored::at(now_ms));
            Ok(Opened {
                store: Arc::new(store),
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                shared_clock: Some(clock),
                exclusive: false,
                embedded: None,
            })
        }
    }
}

/// What the upstream side is told.
pub fn upstream_settings(config: &Config) -> UpstreamSettings {
    let (url, command) = match &config.upstream.server {
        Wrapped::Url(url) => (url.to_string(), None),
        Wrapped::Command(command) => (String::new(), Some(program(command))),
    };
    UpstreamSettings {
        url,
        command,
        children_max: config.upstream.children_max,
        era: match config.upstream.era {
            EraChoice::Auto => None,
            EraChoice::Legacy => Some(Era::Legacy),
            EraChoice::Modern => Some(Era::Modern),
        },
        session: match config.upstream.session {
            SessionUse::Pool => SessionMode::Pool,
            SessionUse::Caller => SessionMode::Caller,
        },
        sessions_max: config.upstream.sessions_max,
        connect_timeout: config.upstream.connect_timeout,
        // Room for the envelope around the largest result.
        message_bytes_max: usize::try_from(config.rules.result_bytes_max())
            .unwrap_or(usize::MAX)
            .saturating_add(64 * 1024),
        ..UpstreamSettings::default()
    }
}

fn program(command: &config::Command) -> Program {
    let exposed = |(name, value): &(String, Secret)| (name.clone(), value.expose().to_owned());
    let arguments = command
        .arguments
        .iter()
        .map(|text| text.expose().to_owned());
    Program {
        name: command.program.clone(),
        arguments: arguments.collect(),
        environment: command.environment.iter().map(exposed).collect(),
        directory: command.directory.clone(),
        ..Program::default()
    }
}

async fn bind(listen: &config::Listen, limits: &config::Limits) -> Result<Server, AppError> {
    let tls = match &listen.tls {
        Some(files) => Some(tls::server_config(&files.certificate, &files.key).map_err(line)?),
        None => None,
    };
    let settings = server::Settings {
        connections_max: limits.connections,
        header_timeout: limits.header_timeout,
        h2c: listen.h2c,
        tls,
    };
    let bound = Server::bind(listen.address, settings).await;
    bound.map_err(|error| {
        AppError(format!(
            "{} cannot be listened on: {error}; choose another address with --listen",
            listen.address
        ))
    })
}

/// An error and its causes on one line.
fn line(error: impl std::error::Error) -> AppError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    AppError(text)
}
