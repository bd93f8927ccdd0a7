//! The variables of the environment that have a meaning.

use std::path::PathBuf;

/// The variables that the official SDKs let a server inherit, and those without which many programs do not start. The server
/// gets no others, because raincheck's own environment may hold secrets.
pub const INHERITED: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Returns `true` if both are names of the same variable.
pub fn is_same_variable(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// The directory for what programs keep between runs: `%LOCALAPPDATA%`. `get` looks a variable up.
pub fn state_directory(get: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name| {
        get(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("LOCALAPPDATA").or_else(|| Some(absolute("USERPROFILE")?.join(r"AppData\Local")))
}

/// The name of this machine.
pub fn machine_name(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    get("COMPUTERNAME").map(|name| name.to_lowercase())
}
