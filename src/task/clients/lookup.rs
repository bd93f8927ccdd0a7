//! Finds the line of a client. The client's description of itself is bounded here, and never trusted.

use serde_json::value::RawValue;

use super::client::{KnownClient, numbers};
use super::table::CLIENTS;
use crate::mcp::json::Object;

/// The largest `clientInfo` that is read. Icons make it large.
const INFO_BYTES_MAX: usize = 64 * 1024;

/// No name and no version of the table is longer.
const WORD_BYTES_MAX: usize = 128;

impl KnownClient {
    /// Returns the line for a client's description of itself (`clientInfo`).
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

    /// The names of all known clients, each once.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<_> = CLIENTS.iter().map(|line| line.name).collect();
        names.dedup();
        names
    }

    /// Returns `true` if the table has different lines for versions of this client.
    pub fn depends_on_version(name: &str) -> bool {
        let is_apart = |line: &Self| line.name == name && !line.since.is_empty();
        CLIENTS.iter().any(is_apart)
    }

    /// Returns `true` if the version consists of numbers. Any other version may be an old one.
    pub fn reads_version(version: &str) -> bool {
        numbers(version).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::json::raw;

    /// The description that each known client gives of itself, in the order of the table.
    const REAL: [(&str, &str); 11] = [
        ("claude-code", "2.1.330"),
        ("opencode", "1.18.33"),
        ("opencode", "1.14.2"),
        ("codex-mcp-client", "0.169.0"),
        ("codex-mcp-client", "0.154.0"),
        ("claude-ai", "0.1.0"),
        ("mcpc", "0.6.0"),
        ("gemini-cli-mcp-client-build", "0.61.0"),
        ("qwen-cli-mcp-client-build", "0.0.1"),
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
