//! SIGHUP: without a terminal it reloads the TLS files and the file of tokens; if the terminal has closed, it ends the process.

use std::io::{self, IsTerminal as _};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::Reload;

/// A handler of SIGHUP, installed from its creation on.
pub(super) struct Sighup {
    signal: Signal,
    on_terminal: bool,
}

impl Sighup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            on_terminal: io::stdin().is_terminal(),
        })
    }

    /// Reloads at each signal. Returns when the signal came because the terminal has closed.
    pub(super) async fn handle(&mut self, reload: &Reload) -> &'static str {
        while self.signal.recv().await.is_some() {
            // A terminal that has closed is none any more. After `kill -HUP` it still is one, and the signal means a
            // reload.
            if self.on_terminal && !io::stdin().is_terminal() {
                return "SIGHUP";
            }
            // What went wrong is in the log.
            let _ = reload.all().await;
        }
        std::future::pending().await
    }
}
