//! The two worlds of MCP and the revisions in them.

/// Which of the two worlds of MCP a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    /// Sessions and `initialize`: 2024-11-05 to 2025-11-25.
    Legacy,
    /// Stateless, everything in `_meta` of each request: since 2026-07-28.
    Modern,
}

/// The revision that raincheck speaks with modern clients and servers.
pub const MODERN: &str = "2026-07-28";

/// The revision that raincheck offers to a legacy server.
pub const LEGACY_NEWEST: &str = "2025-11-25";

/// The legacy revisions with Streamable HTTP, the oldest first.
pub const LEGACY: [&str; 3] = [LEGACY_UNSAID, "2025-06-18", LEGACY_NEWEST];

/// The first revision, without Streamable HTTP. Its clients read what those of the next one read.
pub const LEGACY_FIRST: &str = "2024-11-05";

/// The revision of a legacy client that names none (2025-11-25, Transports, Protocol Version Header).
pub const LEGACY_UNSAID: &str = "2025-03-26";

/// The modern revision and [`LEGACY`] as JSON, the newest first.
pub const ALL_AS_JSON: &str = r#"["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]"#;

/// The first revision in which events may have no data. Clients of earlier ones read such an event as a message that is
/// no JSON.
pub const FIRST_WITH_PRIMING: &str = "2025-11-25";

/// The first revision in which an elicitation names its mode, and one that sends the user to a URL has an id.
pub const FIRST_WITH_MODES: &str = "2025-11-25";

/// The era of a protocol revision; revisions are dates, so text order is time order.
pub fn era_of(revision: &str) -> Era {
    if revision >= "2026" {
        Era::Modern
    } else {
        Era::Legacy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_revisions_are_listed_once_and_newest_first() {
        let listed: Vec<String> = serde_json::from_str(ALL_AS_JSON).unwrap();
        let newest_first = LEGACY.iter().chain(&[MODERN]).rev();
        assert!(listed.iter().eq(newest_first), "{listed:?}");
        assert!(LEGACY.iter().all(|legacy| era_of(legacy) == Era::Legacy));
        assert_eq!(era_of(MODERN), Era::Modern);
    }
}
