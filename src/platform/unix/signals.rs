//! The signals that end the process, reload its files, or come from a person at a terminal.

use std::io::{self, IsTerminal as _};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::process::ignores_hangup;

/// The signals that stop the process: TERM from an orchestrator, INT from a person.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// HUP of a terminal that closes.
    hangup: Option<Signal>,
}

impl StopSignals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
        })
    }

    /// For a process that reloads nothing.
    pub fn with_hangup() -> io::Result<Self> {
        // `nohup` starts programs that the end of the terminal must not end.
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            hangup: hangup.transpose()?,
            ..Self::new()?
        })
    }

    /// Returns the name of the next signal. Cancel safe: no signal is lost.
    pub async fn asked(&mut self) -> &'static str {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hung_up => "SIGHUP",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// SIGHUP of a service: without a terminal it asks for a reload; if the terminal has closed, it ends the process.
#[derive(Debug)]
pub struct ReloadSignal {
    signal: Signal,
    on_terminal: bool,
}

impl ReloadSignal {
    /// Handles SIGHUP from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            signal: signal(SignalKind::hangup())?,
            on_terminal: io::stdin().is_terminal(),
        })
    }

    /// Returns at the next reload that is asked for. `Err`: the name of the signal, which came because the terminal has closed.
    pub async fn asked(&mut self) -> Result<(), &'static str> {
        if self.signal.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        // A terminal that has closed is none any more. After `kill -HUP` it still is one, and the signal means a
        // reload.
        let has_closed = self.on_terminal && !io::stdin().is_terminal();
        if has_closed { Err("SIGHUP") } else { Ok(()) }
    }
}

/// Ctrl-C, as often as it is pressed.
#[derive(Debug)]
pub struct Interrupt(Signal);

impl Interrupt {
    /// From now on Ctrl-C no longer ends the process.
    pub fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::interrupt())?))
    }

    /// Resolves at the next press. Cancel safe.
    pub async fn pressed(&mut self) {
        self.0.recv().await;
    }
}
