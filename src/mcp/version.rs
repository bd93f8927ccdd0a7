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

/// The era of a protocol revision; revisions are dates, so text order is time order.
pub fn era_of(revision: &str) -> Era {
    if revision >= "2026" {
        Era::Modern
    } else {
        Era::Legacy
    }
}
