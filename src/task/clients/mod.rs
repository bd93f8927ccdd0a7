//! KNOWN CLIENTS: what is known of a client by the name that it gives itself, and what it gets where the operator has not said
//! otherwise. Pure.
//!
//! A client can give itself any name. So nothing that it may do depends on its name: only how it hears of a call that
//! takes long.

use std::fmt;

use serde_json::value::RawValue;

use crate::mcp::json::Object;

mod table;
mod terms;

pub use table::CLIENTS;
pub use terms::{Choice, ClientTerms};

/// The largest `clientInfo` that is read. Icons make it large.
const INFO_BYTES_MAX: usize = 64 * 1024;

/// No name and no version of the table is longer.
const WORD_BYTES_MAX: usize = 128;

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownClient {
    /// `clientInfo.name`. With a "*" at its end: every name that begins so.
    pub name: &'static str,
    /// The first version that the line is about; empty: every version.
    pub since: &'static str,
    /// How long the client waits for one call.
    pub patience: Patience,
    pub on_progress: OnProgress,
    pub tasks: KnownTasks,
    /// Whether the client fetches what a `resource_link` in a result names. `None`: not known.
    pub reads_links: Option<bool>,
    /// What becomes of a large result; empty: not known.
    pub large_results: &'static str,
    pub found_out: FoundOut,
}

/// How long a client waits for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It has no limit of its own.
    Unlimited,
    Seconds(u32),
}

/// What a progress notification does to the client's patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnProgress {
    /// It starts anew.
    Restarts,
    /// Nothing, or the client asks for no progress.
    GoesOn,
    NotKnown,
}

/// Which tasks a client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownTasks {
    None,
    /// Those of 2025-11-25, on a session.
    Of2025,
    /// The extension of 2026-07-28. The client declares it on each request that may become a task.
    Of2026,
    /// Those of 2025-11-25, and its user can do nothing while one runs.
    BlocksOn2025,
}

/// How a line was found out.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundOut {
    pub basis: Basis,
    /// What was measured or read.
    pub what: &'static str,
    pub date: &'static str,
}

/// How sure a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The real client was run.
    Measured,
    /// The client's source says so.
    Read,
    /// Its users say so.
    Reported,
}

impl Basis {
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Read => "read in the source",
            Self::Reported => "reported by users",
        }
    }
}

impl KnownClient {
    /// The line for what a client says of itself (`clientInfo`).
    pub fn of_info(info: &RawValue) -> Option<&'static Self> {
        if info.get().len() > INFO_BYTES_MAX {
            return None;
        }
        let info = Object::parse(info.get()).ok()?;
        let name = info.get_str("name")?;
        Self::named(&name, &info.get_str("version").unwrap_or_default())
    }

    /// The line for a client of this name and version.
    pub fn named(name: &str, version: &str) -> Option<&'static Self> {
        if name.len() > WORD_BYTES_MAX || version.len() > WORD_BYTES_MAX {
            return None;
        }
        CLIENTS.iter().find(|line| line.is_of(name, version))
    }

    fn is_of(&self, name: &str, version: &str) -> bool {
        let fits = match self.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == self.name,
        };
        // A version that cannot be read may be an old one.
        fits && (self.since.is_empty()
            || numbers(version).is_some_and(|version| Some(version) >= numbers(self.since)))
    }
}

impl fmt::Display for KnownClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if !self.since.is_empty() {
            write!(f, " since {}", self.since)?;
        }
        Ok(())
    }
}

/// The first three numbers of a version. What follows a "-" or a "+" does not count.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split(['-', '+']).next()?;
    let mut found = [0; 3];
    let mut parts = version.split('.');
    for (place, number) in found.iter_mut().enumerate() {
        match parts.next() {
            Some(part) => *number = part.parse().ok()?,
            None if place == 0 => return None,
            None => break,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;

    /// What each known client says of itself, in the order of the table.
    const REAL: [(&str, &str); 11] = [
        ("claude-code", "2.1.330"),
        ("opencode", "1.18.33"),
        ("opencode", "1.14.2"),
        ("codex-mcp-client", "0.169.0"),
        ("codex-mcp-client", "0.154.0"),
        ("claude-ai", "0.1.0"),
        ("mcpc", "0.6.0"),
        ("gemini-cli-mcp-client-build", "0.61.0"),
        ("qwen-code-mcp-client", "0.0.1"),
        ("Visual Studio Code - Insiders", "1.126.0-insider"),
        ("mcp", "0.1.0"),
    ];

    fn of(text: &str) -> Option<&'static KnownClient> {
        KnownClient::of_info(&raw(text.to_owned()).unwrap())
    }

    #[test]
    fn each_line_is_the_line_of_a_real_client() {
        assert_eq!(CLIENTS.len(), REAL.len());
        for (line, (name, version)) in CLIENTS.iter().zip(REAL) {
            let info = format!(r#"{{"name":"{name}","version":"{version}"}}"#);
            assert!(std::ptr::eq(of(&info).unwrap(), line), "{name} {version}");
            assert!(!line.found_out.what.is_empty() && line.found_out.date.len() == 10);
            assert!(line.since.is_empty() || numbers(line.since).is_some());
        }
    }

    #[test]
    fn what_a_client_cannot_be_known_by_is_no_name() {
        let long = "x".repeat(INFO_BYTES_MAX);
        for info in [
            "{}".to_owned(),
            "[]".to_owned(),
            "null".to_owned(),
            r#"{"name":["opencode"],"version":"1.18.0"}"#.to_owned(),
            r#"{"name":"Opencode","version":"1.18.0"}"#.to_owned(),
            r#"{"name":"xgemini-cli-mcp-client"}"#.to_owned(),
            format!(r#"{{"name":"gemini-cli-mcp-client-{}"}}"#, &long[..200]),
            format!(r#"{{"name":"opencode","version":"{}"}}"#, &long[..200]),
            format!(r#"{{"name":"opencode","icons":["{long}"]}}"#),
        ] {
            assert_eq!(of(&info), None, "{}", &info[..info.len().min(80)]);
        }
    }

    #[test]
    fn a_version_that_cannot_be_read_is_an_old_one() {
        let since = |version| KnownClient::named("opencode", version).unwrap().since;
        for new in ["1.18", "1.18.0", "v1.18.3-beta.1", "1.19", "2", "1.18.0.9"] {
            assert_eq!(since(new), "1.18", "{new}");
        }
        for old in ["1.17.99", "", "local", "1.x", "99999999999.0", "-1"] {
            assert_eq!(since(old), "", "{old}");
        }
    }
}
