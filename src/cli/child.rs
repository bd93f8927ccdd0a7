//! `raincheck __child [--open-files N] PID -- COMMAND`: becomes the wrapped server, tied to the life
//! of its parent.
//!
//! The tie has to be made by the process itself, between fork and exec. A program that does it and
//! nothing else needs no unsafe code for that.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::failure::CommandFailure;
use crate::io_reason::io_reason;

#[derive(Debug, Args)]
pub(super) struct ChildArgs {
    /// The soft limit of open files, where raincheck has raised its own
    #[arg(long)]
    open_files: Option<u64>,
    /// The raincheck that asked
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes the program. Returns only if that fails, with the exit code of shells for such a failure.
pub(super) fn exec_program(line: &ChildArgs) -> CommandFailure {
    let Some((program, arguments)) = line.command.split_first() else {
        return CommandFailure::usage("no command");
    };
    // The tie comes before everything else: after the end of the parent no program may start.
    if let Err(error) = tie_to(line.parent) {
        return CommandFailure::runtime(format!("not started: {}", io_reason(&error)));
    }
    if let Err(error) = line.open_files.map_or(Ok(()), limit_files) {
        return CommandFailure::runtime(format!("not started: {}", io_reason(&error)));
    }
    let error = Command::new(program).args(arguments).exec();
    CommandFailure {
        code: if error.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        },
        text: format!(
            "{} cannot be run: {}",
            program.to_string_lossy(),
            io_reason(&error)
        ),
    }
}

fn limit_files(soft: u64) -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(soft);
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Makes the kernel kill this process when its parent ends. A parent that has already ended is found by comparing the
/// parent's id.
#[cfg(target_os = "linux")]
fn tie_to(parent: i32) -> io::Result<()> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};

    // The signal is set before the parent is compared, so that a parent that ends in between is noticed in one of both
    // ways.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_there = getppid().is_some_and(|now| now.as_raw_pid() == parent);
    if is_there {
        Ok(())
    } else {
        Err(io::Error::other("its parent has ended"))
    }
}

/// On other systems the server notices its parent's end by the end of its standard input.
#[cfg(not(target_os = "linux"))]
fn tie_to(_parent: i32) -> io::Result<()> {
    Ok(())
}
