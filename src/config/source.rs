//! The sources of settings, beside the environment: the command line, and the file that it names.

use std::path::PathBuf;

/// The settings of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub upstream: Option<String>,
    pub listen: Option<String>,
    pub store: Option<String>,
    pub namespace: Option<String>,
    pub log: Option<String>,
    /// `true` if several processes may run with the same settings, one for each client (`raincheck stdio`).
    pub for_one_client: bool,
    /// The program to wrap and its arguments, written after `--`.
    pub command: Vec<String>,
}

/// The source of the settings, to read them again. Its text shows nothing: the flags may hold secrets.
#[derive(Clone, Default)]
pub struct Source(Flags);

impl Source {
    pub(super) fn new(flags: &Flags) -> Self {
        Self(flags.clone())
    }

    pub(super) fn flags(&self) -> &Flags {
        &self.0
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}
