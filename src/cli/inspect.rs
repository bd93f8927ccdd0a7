//! What `raincheck check` learns from the wrapped server.

use tokio_util::task::TaskTracker;

use crate::app::upstream_settings;
use crate::config::Config;
use crate::mcp::json::Object;
use crate::mcp::version::Era;
use crate::upstream::wrapped::{DiscoverError, Discovered, Upstream};

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
pub(super) async fn inspect(config: &Config) -> Result<Inspection, String> {
    let upstream = Upstream::new(upstream_settings(config), TaskTracker::new());
    let upstream = upstream.map_err(|error| error.to_string())?;
    let era = upstream.era(None).await.map_err(sentence)?;
    let discovered = upstream.discover([0; 16], None).await.map_err(sentence)?;
    let tools = upstream
        .tools([0; 16], None, "{}".into())
        .await
        .map_err(sentence)?;
    let capabilities = Object::parse(discovered.capabilities.get()).unwrap_or_default();
    Ok(Inspection {
        era,
        server: server(&discovered),
        capabilities: capabilities
            .iter()
            .map(|(name, _)| name.to_owned())
            .collect(),
        tools: tools.names().map(str::to_owned).collect(),
    })
}

fn server(discovered: &Discovered) -> Option<String> {
    let info = Object::parse(discovered.server_info.as_ref()?.get()).ok()?;
    let name = info.get_str("name")?;
    Some(match info.get_str("version") {
        Some(version) => format!("{name} {version}"),
        None => name.into_owned(),
    })
}

fn sentence(error: DiscoverError) -> String {
    match error {
        DiscoverError::Failed(failure) => failure.message().to_owned(),
        DiscoverError::Unauthorized(error) => {
            format!(
                "The server wants credentials: it answered with HTTP status {}",
                error.status
            )
        }
    }
}
