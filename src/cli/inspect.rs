//! What `raincheck check` learns from the wrapped server.

use crate::config::Config;
use crate::mcp::version::Era;

/// The wrapped server, as it answered just now.
#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) era: Era,
    /// `serverInfo`, as "name version".
    pub(super) server: Option<String>,
    /// Names of the server's capabilities.
    pub(super) capabilities: Vec<String>,
    /// Names, in the server's order.
    pub(super) tools: Vec<String>,
}

/// Asks the wrapped server, without credentials.
pub(super) async fn inspect(_config: &Config) -> Result<Inspection, String> {
    Err("the parts are not wired yet".into())
}
