//! The variables of the environment that have a meaning.

use std::path::PathBuf;

/// The variables that the official SDKs let a server inherit. The server gets no others, because raincheck's
/// own environment may hold secrets.
pub const INHERITED: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Returns `true` if both are names of the same variable.
pub fn is_same_variable(one: &str, other: &str) -> bool {
    one == other
}

/// The directory for what programs keep between runs: `$XDG_STATE_HOME`, else `~/.local/state`. `get` looks a variable up.
pub fn state_directory(get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // The base directory specification says to ignore a relative path.
    let absolute = |name| {
        get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))
}

/// Why there is no [`state_directory`].
pub const NO_STATE_DIRECTORY: &str = "neither XDG_STATE_HOME nor HOME is set";

/// JSON as a word of a command line, for the shells of this system.
pub fn quoted(json: &str) -> String {
    format!("'{json}'")
}

/// The name of this machine. `None`: the system gives none.
pub fn machine_name(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    // HOSTNAME is a shell variable that is seldom exported, but containers set it.
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| get("HOSTNAME"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_follows_the_base_directory_specification() {
        let directory = |pairs: &[(&str, &str)]| {
            let get = |name: &str| pairs.iter().find(|(own, _)| *own == name);
            state_directory(|name| Some(get(name)?.1.to_owned()))
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
