//! The process that becomes the wrapped server, tied to the life of its parent.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

pub use super::process::own_program;
use super::process::tie_to;

/// Gives a child a process group of its own: what it starts (npx starts node) is signalled with it, and Ctrl-C in a terminal
/// does not reach it.
pub fn separate(command: &mut tokio::process::Command) {
    command.process_group(0);
}

/// Becomes the program. Returns only if that fails.
///
/// The tie to the parent has to be made by the process itself, between fork and exec. A process that does it and
/// nothing else needs no unsafe code for that.
pub fn run(
    parent: u32,
    open_files: Option<u64>,
    program: &OsString,
    arguments: &[OsString],
) -> Result<ExitCode, StartError> {
    // The tie comes before everything else: after the end of the parent no program may start.
    tie_to(parent).map_err(StartError::Before)?;
    open_files
        .map_or(Ok(()), limit_files)
        .map_err(StartError::Before)?;
    Err(StartError::Program(
        Command::new(program).args(arguments).exec(),
    ))
}

/// Looks for a program as the start does, in a directory and with the variables that it gets. `Err`: what is wrong.
pub fn look_for(
    program: &str,
    directory: &Path,
    get: impl Fn(&str) -> Option<String>,
) -> Result<(), &'static str> {
    // Like `execvp`, the start does not search the PATH for a name with a slash.
    if program.contains('/') {
        let is_there = directory.join(program).exists();
        return is_there.then_some(()).ok_or("does not exist");
    }
    // Without a PATH, the system has one.
    let Some(path) = get("PATH") else {
        return Ok(());
    };
    // A relative or empty part of the PATH counts from the directory in which the program starts.
    let is_there = |part: &str| directory.join(part).join(program).exists();
    path.split(':')
        .any(is_there)
        .then_some(())
        .ok_or("is not on the PATH")
}

/// Why a program was not started.
#[derive(Debug)]
pub enum StartError {
    /// A step before it failed.
    Before(io::Error),
    /// The program cannot be run.
    Program(io::Error),
}

fn limit_files(soft: u64) -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(soft);
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// The soft limit of open files of this process. `None`: there is none.
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the soft limit of open files to the hard limit.
pub fn raise_file_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns `true` if the system has no file descriptor, no process or no memory for another program.
pub fn is_out_of_room(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| {
        [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM].contains(&errno)
    })
}
