//! Defaults that depend on the machine: a name for the replica, and a directory for state.

use std::path::PathBuf;

/// The facts about the machine. They are passed in, so that tests do not depend on the machine.
#[derive(Debug, Clone, Default)]
pub(super) struct Host {
    pub(super) name: Option<String>,
    /// `$XDG_STATE_HOME`, else `~/.local/state`.
    pub(super) state_directory: Option<PathBuf>,
    pub(super) working_directory: Option<PathBuf>,
}

impl Host {
    pub(super) fn new(environment: &[(String, String)]) -> Self {
        let get = |name: &str| {
            environment
                .iter()
                .find_map(|(key, value)| (key == name && !value.is_empty()).then_some(value))
        };
        // The base directory specification says to ignore a relative path.
        let absolute = |path: &String| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
        let state_directory = get("XDG_STATE_HOME")
            .and_then(absolute)
            .or_else(|| Some(get("HOME").and_then(absolute)?.join(".local/state")));
        // HOSTNAME is a shell variable that is seldom exported, but containers set it.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .or_else(|| get("HOSTNAME").cloned());
        Self {
            name,
            state_directory,
            working_directory: std::env::current_dir().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_follows_the_base_directory_specification() {
        let directory = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            Host::new(&pairs).state_directory
        };
        let home = ("HOME", "/srv/ada");
        assert_eq!(directory(&[home]), Some("/srv/ada/.local/state".into()));
        assert_eq!(
            directory(&[home, ("XDG_STATE_HOME", "/s")]),
            Some("/s".into())
        );
        assert_eq!(
            directory(&[home, ("XDG_STATE_HOME", "relative")]),
            Some("/srv/ada/.local/state".into())
        );
        assert_eq!(directory(&[]), None);
    }
}
