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

/// Why there is no [`state_directory`].
pub const NO_STATE_DIRECTORY: &str = "neither LOCALAPPDATA nor USERPROFILE is set";

/// JSON as a word of a command line, for `cmd`.
pub fn quoted(json: &str) -> String {
    format!("\"{}\"", json.replace('"', "\\\""))
}

/// The name of this machine.
pub fn machine_name(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    get("COMPUTERNAME").map(|name| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_the_users() {
        let directory = |pairs: &[(&str, &str)]| {
            let get = |name: &str| pairs.iter().find(|(own, _)| *own == name);
            state_directory(|name| Some(get(name)?.1.to_owned()))
        };
        let local = ("LOCALAPPDATA", r"D:\Users\Ada Lovelace\AppData\Local");
        let profile = ("USERPROFILE", r"C:\Users\ada");
        assert_eq!(directory(&[local, profile]), Some(local.1.into()));
        let found = directory(&[("LOCALAPPDATA", "relative"), profile]);
        assert_eq!(found, Some(r"C:\Users\ada\AppData\Local".into()));
        assert_eq!(directory(&[]), None);
    }

    #[test]
    fn json_is_quoted_as_a_program_reads_it() {
        assert_eq!(quoted(r#"{"a":1}"#), r#""{\"a\":1}""#);
    }

    #[test]
    fn names_of_variables_have_no_case() {
        assert!(is_same_variable("Path", "PATH"));
        assert!(!is_same_variable("Path", "PATHEXT"));
    }
}
