//! SIGHUP: a process without a terminal reads its files anew; the end of a terminal is the end of
//! what was started there.

use std::io::{self, IsTerminal as _};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::Reload;

/// The signal, heard from here on.
pub(super) struct Hangup {
    signal: Signal,
    on_terminal: bool,
}

impl Hangup {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            on_terminal: io::stdin().is_terminal(),
        })
    }

    /// Reads anew at each signal. Returns when it came because the terminal is gone.
    pub(super) async fn obeyed(&mut self, reload: &Reload) -> &'static str {
        while self.signal.recv().await.is_some() {
            if self.on_terminal && !io::stdin().is_terminal() {
                return "SIGHUP";
            }
            reload.all().await;
        }
        std::future::pending().await
    }
}
