//! `raincheck run`: build, serve, drain on a signal.

use std::process::ExitCode;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::failure::CommandFailure;
use super::process::runtime;
use super::sighup::Sighup;
use crate::app::App;
use crate::config::Config;
use crate::io_reason::io_reason;

pub(super) fn run(config: Config) -> Result<ExitCode, CommandFailure> {
    #[cfg(feature = "failpoints")]
    crate::failpoint::arm().map_err(CommandFailure::usage)?;
    let open_files = raise_file_limit();
    runtime()?.block_on(async {
        // The handlers come first, because the default handler of a signal would kill the process.
        let mut stop = StopSignals::new().map_err(|e| CommandFailure::runtime(format!("no signals: {}", io_reason(&e))))?;
        let mut sighup = Sighup::new().map_err(|e| CommandFailure::runtime(format!("no signals: {}", io_reason(&e))))?;
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
        let hung_up = sighup.handle(&reload);
        let signal = tokio::select! {
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

/// Raises the soft limit of open files to the hard limit, because a call holds two sockets and the usual soft limit of
/// 1,024 would end at 500 calls. Returns the old soft limit, which the wrapped program gets.
pub(super) fn raise_file_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(error = %io_reason(&error), "the limit of open files stays as it is");
    }
    before
}

/// The signals that stop the process: TERM from an orchestrator, INT from a person.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Cancel safe: no signal is lost.
    pub(super) async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
