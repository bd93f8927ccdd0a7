//! Defaults that depend on the machine: a name for the replica, and a directory for state.

use std::path::PathBuf;

use crate::platform::environment::{is_same_variable, machine_name, state_directory};

/// The facts about the machine. They are passed in, so that tests do not depend on the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    pub(super) name: Option<String>,
    /// Where the system has what programs keep between runs.
    pub(super) state_directory: Option<PathBuf>,
    pub(super) working_directory: Option<PathBuf>,
}

impl Host {
    pub(super) fn new(environment: &[(String, String)]) -> Self {
        let get = |name: &str| {
            let is_it = |key: &str, value: &str| is_same_variable(key, name) && !value.is_empty();
            environment
                .iter()
                .find_map(|(key, value)| is_it(key, value).then(|| value.clone()))
        };
        Self {
            name: machine_name(get),
            state_directory: state_directory(get),
            working_directory: std::env::current_dir().ok(),
        }
    }
}
