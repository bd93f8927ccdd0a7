//! The wrapped server as a program that speaks MCP over its standard input and output.
//!
//! raincheck runs it itself, without a shell, in a process group of its own, with an environment
//! that names every variable in it, and leaves nothing of it behind however it ends.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) mod child;
mod lines;
pub(super) mod spawner;
mod stderr;

/// A child may take twice 2 s to end, and then it is killed.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// How long a call that asks before its task waits for a process to be there; only then its grace
/// window begins. Most are there within two seconds.
pub(super) const START_ALLOWANCE: Duration = Duration::from_secs(10);

/// What is run, and how.
#[derive(Clone)]
pub struct Program {
    /// raincheck itself, which becomes the program after it has tied itself to its parent.
    pub launcher: PathBuf,
    /// A name that is looked for in `PATH`, or a path.
    pub name: String,
    pub arguments: Vec<String>,
    /// All that the program sees of any environment.
    pub environment: Vec<(String, String)>,
    /// `None`: our own.
    pub directory: Option<PathBuf>,
    /// The soft limit of open files. Programs that go through all that they may have open take
    /// long where it is as high as ours. `None`: our own.
    pub open_files: Option<u64>,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            // Also there when the file was replaced, as by an upgrade.
            launcher: if cfg!(target_os = "linux") {
                "/proc/self/exe".into()
            } else {
                std::env::current_exe().unwrap_or_else(|_| "raincheck".into())
            },
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
