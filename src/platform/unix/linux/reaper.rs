//! The process that reaps others, where raincheck is process 1 of a container or a subreaper.
//!
//! The kernel makes such a process the parent of everything that programs leave behind, and what ends then stays a zombie
//! until its parent waits for it. raincheck itself waits for its own children only: if it waited for any child, it could take
//! the exit status of a program from the code that waits for that program. So raincheck runs in a child of this process,
//! which does nothing but wait, and pass signals on.

use std::io::{self, IsTerminal as _, stdin};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use procfs::process::Process;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, child_subreaper, kill_process, wait};
use rustix::termios::tcsetpgrp;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Runs this very command in a child process if orphans become children of this process, and returns the exit code of that
/// child. `None`: they do not.
pub fn run_in_child() -> io::Result<Option<ExitCode>> {
    if !adopts_orphans() {
        return Ok(None);
    }
    // The kernel ends the child when the thread that started it ends, so that is this one.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_child_ends()).map(Some)
}

/// A subreaper is one before it is executed: raincheck never makes itself one, and a child of a subreaper is none.
fn adopts_orphans() -> bool {
    std::process::id() == 1 || child_subreaper().is_ok_and(|is| is.is_some())
}

async fn until_child_ends() -> io::Result<ExitCode> {
    // What comes before the child runs must not be lost. As process 1, raincheck never gets other signals, except SIGKILL and
    // SIGSTOP.
    let mut child_ended = signal(SignalKind::child())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let child = Pid::from_child(&command().spawn()?);
    // A terminal is read by its foreground group only.
    if is_in_foreground() {
        let _ = tcsetpgrp(stdin(), child);
    }
    loop {
        let passed = tokio::select! {
            _ = hangup.recv() => Signal::HUP,
            _ = interrupt.recv() => Signal::INT,
            _ = terminate.recv() => Signal::TERM,
            _ = child_ended.recv() => {
                // One signal may stand for several ends.
                while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                    if pid == child {
                        return Ok(exit_code(status));
                    }
                }
                continue;
            }
        };
        // The child was not waited for yet, so its id is no other process's.
        let _ = kill_process(child, passed);
    }
}

/// Returns `true` if standard input is a terminal that is this process's to give. The kernel stops a process in the
/// background that tries.
fn is_in_foreground() -> bool {
    let stat = Process::myself().and_then(|process| process.stat());
    stdin().is_terminal() && stat.is_ok_and(|stat| stat.pgrp == stat.tpgid)
}

/// This command again, tied to the life of this process. It has a process group of its own: a terminal sends Ctrl-C to a whole
/// group, and raincheck would get it twice, which means that it ends at once.
fn command() -> Command {
    let itself = "/proc/self/exe";
    // The real name shows in lists of processes. It is gone if the file was replaced.
    let named = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(itself);
    command
        .arg("__child")
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(named.unwrap_or_else(|| itself.into()))
        .args(std::env::args_os().skip(1))
        .process_group(0);
    command
}

/// Returns the exit code by the convention of shells.
fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
