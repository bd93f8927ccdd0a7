//! The events of the console that end the process, or come from a person.

use std::io;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};

/// The events that stop the process: Ctrl-C and Ctrl-Break from a person or a parent process, and the end of the console, the
/// session or the system. After those three Windows ends the process some seconds later.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
    logoff: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl StopSignals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// The same: there is no signal that would ask for a reload.
    pub fn with_hangup() -> io::Result<Self> {
        Self::new()
    }

    /// Returns the name of the next event. Cancel safe: no event is lost.
    pub async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "Ctrl-C",
            _ = self.stop.recv() => "Ctrl-Break",
            _ = self.close.recv() => "the end of the console",
            _ = self.logoff.recv() => "the end of the session",
            _ = self.shutdown.recv() => "the end of the system",
        }
    }
}

/// The signal for a reload, which Windows does not have. The admin listener reloads.
#[derive(Debug)]
pub struct ReloadSignal;

impl ReloadSignal {
    #[expect(clippy::unnecessary_wraps, reason = "other systems have such a signal")]
    pub fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Never returns.
    pub async fn asked(&mut self) -> Result<(), &'static str> {
        std::future::pending().await
    }
}

/// Ctrl-C, as often as it is pressed.
#[derive(Debug)]
pub struct Interrupt(CtrlC);

impl Interrupt {
    /// From now on Ctrl-C no longer ends the process.
    pub fn new() -> io::Result<Self> {
        Ok(Self(ctrl_c()?))
    }

    /// Resolves at the next press. Cancel safe.
    pub async fn pressed(&mut self) {
        self.0.recv().await;
    }
}
