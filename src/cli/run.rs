//! `raincheck run`: build, serve, drain on a signal.

use std::process::ExitCode;

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::failure::CommandFailure;
use super::process::runtime;
use crate::app::{App, Reload};
use crate::base::io_reason::io_reason;
use crate::config::{Config, LimitSettings};
use crate::platform::child::{self, file_limit};
use crate::platform::service;
use crate::platform::signals::{ReloadSignal, StopSignals};

/// The threads of a server and the signals that they handle. It is made before the settings are read: until then a signal
/// ends the process, also one that asks for a reload.
pub(super) struct ServerProcess {
    runtime: Runtime,
    stop: StopSignals,
    reload: ReloadSignal,
}

impl ServerProcess {
    pub(super) fn new() -> Result<Self, CommandFailure> {
        let runtime = runtime()?;
        // A handler of a signal registers with the runtime that is entered.
        let entered = runtime.enter();
        let signals = StopSignals::new().and_then(|stop| Ok((stop, ReloadSignal::new()?)));
        // The guard borrows the runtime, which moves into the result below.
        drop(entered);
        let (stop, reload) = signals
            .map_err(|e| CommandFailure::runtime(format!("no signals: {}", io_reason(&e))))?;
        Ok(Self {
            runtime,
            stop,
            reload,
        })
    }
}

pub(super) fn run(process: ServerProcess, config: Config) -> Result<ExitCode, CommandFailure> {
    #[cfg(feature = "failpoints")]
    crate::base::failpoint::arm().map_err(CommandFailure::usage)?;
    let open_files = raise_file_limit();
    warn_of_few_files(&config.limits);
    let ServerProcess {
        runtime,
        mut stop,
        reload: mut reload_signal,
    } = process;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let path = config.listen.path.clone();
        let upstream = config.upstream.server.to_string();
        let (store, replica) = (config.store.location.to_string(), config.replica.id.clone());
        let app = App::build(config, open_files)
            .await
            .map_err(|e| CommandFailure::runtime(e.to_string()))?;
        if let Some(address) = app.address() {
            let version = env!("CARGO_PKG_VERSION");
            info!(%address, %path, %upstream, %store, %replica, version, "serving");
            // The listener is bound: the system accepts connections from here on, and keeps them until they are served.
            service::report(&format!("READY=1\nSTATUS=serving {address}{path}"));
        }
        if let Some(address) = app.probes_address() {
            info!(%address, "answering probes");
        }
        if let Some(address) = app.operators_address() {
            info!(%address, "answering operators");
        }

        let reload = app.reload();
        let serving = app.serve(shutdown.clone());
        tokio::pin!(serving);
        let hung_up = reload_whenever_asked(&mut reload_signal, &reload);
        let signal = tokio::select! {
            // Without a signal, the app ends after a drain that a request asked for, or if the store refuses raincheck.
            served = &mut serving => {
                served.map_err(|e| CommandFailure::runtime(e.to_string()))?;
                info!("drained");
                return Ok(ExitCode::SUCCESS);
            }
            signal = stop.asked() => signal,
            signal = hung_up => signal,
        };
        info!(signal, "draining; the same signal again stops at once");
        shutdown.cancel();
        tokio::select! {
            served = &mut serving => {
                served.map_err(|e| CommandFailure::runtime(e.to_string()))?;
                info!("drained");
            }
            signal = stop.asked() => {
                return Err(CommandFailure::runtime(format!("stopped by a second {signal}, not drained")));
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Reloads the TLS files and the file of tokens at each signal. Returns the name of the signal if its terminal has closed.
async fn reload_whenever_asked(signal: &mut ReloadSignal, reload: &Reload) -> &'static str {
    loop {
        if let Err(name) = signal.asked().await {
            return name;
        }
        // What went wrong is in the log.
        let _ = reload.all().await;
    }
}

/// Raises the soft limit of open files to the hard limit, because a call holds two sockets and the usual soft limit of
/// 1,024 would end at 500 calls. Returns the old soft limit, which the wrapped program gets.
pub(super) fn raise_file_limit() -> Option<u64> {
    let before = file_limit();
    // A low limit only bounds the number of calls, so the start goes on.
    if let Err(error) = child::raise_file_limit() {
        warn!(error = %io_reason(&error), "the limit of open files stays as it is");
    }
    before
}

/// Warns if the limit of open files is far below the limits of the settings. Where it is reached, neither clients nor
/// the server can be connected to, and no answer contains the reason.
fn warn_of_few_files(limits: &LimitSettings) {
    let needed = open_files_needed(limits).min(FEW_FILES);
    if let Some(limit) = file_limit()
        && limit < needed
    {
        warn!(
            limit,
            needed,
            "the limit of open files is low: limits.connections and limits.calls need more; raise it (ulimit -n, or \
             LimitNOFILE of systemd), or lower those settings"
        );
    }
}

/// The sockets of all clients, one to the server for each call, and what raincheck opens for itself.
fn open_files_needed(limits: &LimitSettings) -> u64 {
    let sockets = limits.connections.saturating_add(limits.calls);
    u64::try_from(sockets.saturating_add(FILES_OF_OURS)).unwrap_or(u64::MAX)
}

/// Listeners, the store, keys, the collector of traces, standard streams and the runtime.
const FILES_OF_OURS: usize = 64;

/// The limit that nearly every system allows. With as many raincheck serves some hundred calls, which most need no
/// more than.
const FEW_FILES: u64 = 1024;
