//! The wrapped server as a program that speaks MCP over its standard input and output. raincheck starts the
//! program itself, without a shell, in a process group of its own, with an environment of named variables only.
//! Nothing of the program is left when it ends, however it ends.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::platform::child::own_program;

pub(super) mod child;
mod hearing;
mod lines;
pub(super) mod spawner;
mod stderr;
mod unread;

#[cfg(fuzzing)]
pub use lines::fuzzed as fuzzed_lines;

/// The time that the end of all children may take: each has twice 2 s, and is then killed.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// The time that a call waits for its process before its grace window begins. Most processes are there within
/// two seconds.
pub(super) const START_ALLOWANCE: Duration = Duration::from_secs(10);

/// The program to run, and the parameters of its start.
#[derive(Clone)]
pub struct Program {
    /// The executable of raincheck, which ties itself to its parent and then becomes the program.
    pub launcher: PathBuf,
    /// The program: a name that is looked up in `PATH`, or a path.
    pub name: String,
    pub arguments: Vec<String>,
    /// All environment variables that the program sees.
    pub environment: Vec<(String, String)>,
    /// The working directory. `None`: raincheck's own.
    pub directory: Option<PathBuf>,
    /// The soft limit of open files. Some programs close every possible file when they start, which takes long
    /// under a high limit. `None`: raincheck's own.
    pub open_files: Option<u64>,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            launcher: own_program(),
            name: String::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            open_files: None,
        }
    }
}

/// Arguments and variables may hold secrets.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
