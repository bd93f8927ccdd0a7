//! Asks the wrapped server for what `raincheck check` reports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::failure::complain;
use crate::app::diagnose::diagnose;
use crate::app::upstream_settings;
use crate::config::{Config, Wrapped};
use crate::mcp::json::Object;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::upstream::wrapped::{DiscoverError, Upstream};

/// The wrapped server's answers.
#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) era: Era,
    /// `true` if the server speaks HTTP+SSE, the transport of 2024-11-05.
    pub(super) over_sse: bool,
    /// `serverInfo`, as "name version".
    pub(super) server: Option<String>,
    /// Names of the server's capabilities.
    pub(super) capabilities: Vec<String>,
    /// The address to which the server redirected.
    pub(super) redirected: Option<String>,
    pub(super) tools: Arc<Tools>,
    /// The time that a program took to start and to answer the discovery.
    pub(super) started_in: Option<Duration>,
}

impl Inspection {
    /// The names of the server's tools, sorted.
    pub(super) fn tool_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.tools.names().map(str::to_owned).collect();
        names.sort_unstable();
        names
    }
}

/// Asks the wrapped server, without credentials and without a caller's name.
pub(super) async fn inspect(config: &Config) -> Result<Inspection, String> {
    let settings = upstream_settings(config)?;
    let upstream = Upstream::new(&settings, TaskTracker::new()).map_err(|e| e.to_string())?;
    let asked = wait_and_tell(&config.upstream.server, ask(&upstream)).await;
    // How the process ended is known only after the stop.
    upstream.stop().await;
    match asked {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(diagnose(&error, upstream.obstacle().as_ref(), config)),
        Err(_elapsed) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// Waits for a bounded time, and after a while prints for the user that it waits.
async fn wait_and_tell<T>(server: &Wrapped, asking: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut asking = std::pin::pin!(timeout(PATIENCE, asking));
    if let Ok(asked) = timeout(SILENCE, &mut asking).await {
        return asked;
    }
    let launched = match server {
        Wrapped::Command(_) => "; npx and the like may be fetching it",
        Wrapped::Url(_) | Wrapped::Unix(_) => "",
    };
    let seconds = PATIENCE.as_secs();
    complain(&format!(
        "waiting for {server} (up to {seconds} s{launched})"
    ));
    asking.await
}

async fn ask(upstream: &Upstream) -> Result<Inspection, DiscoverError> {
    let from = Instant::now();
    let era = upstream.era(None).await?;
    let discovered = upstream.discover(NOBODY, None, "{}").await?;
    // A server with an address runs already, so there is no start to measure.
    let started_in = (!upstream.has_address()).then(|| from.elapsed());
    let capabilities = names(discovered.capabilities.get());
    // A server without the capability need not have `tools/list`.
    let tools = if capabilities.iter().any(|name| name == "tools") {
        upstream.tools(NOBODY, None, Arc::from("{}")).await?
    } else {
        Arc::default()
    };
    let server = discovered.server_info.as_ref().and_then(|info| {
        let info = Object::parse(info.get()).ok()?;
        let version = info.get_str("version").unwrap_or_default();
        let text = format!("{} {version}", info.get_str("name")?);
        Some(text.trim_end().to_owned())
    });
    Ok(Inspection {
        era,
        over_sse: upstream.has_address() && !upstream.speaks_http(),
        server,
        capabilities,
        redirected: upstream.learned_address(),
        tools,
        started_in,
    })
}

fn names(object: &str) -> Vec<String> {
    let object = Object::parse(object).unwrap_or_default();
    object.iter().map(|(name, _)| name.to_owned()).collect()
}

/// The caller of these requests. It has no credentials and no tasks.
const NOBODY: [u8; 16] = [0; 16];

/// Longer than a server with an address may take for its first answer, so that the reason of a failure is known by then.
const PATIENCE: Duration = Duration::from_mins(1);

/// The time after which the user is notified of the wait. A server that ignores unknown requests answers after 3 s.
const SILENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::cli::demo::server::DemoServer;
    use crate::config::load::{Flags, load};

    fn config(upstream: String) -> Config {
        let flags = Flags {
            upstream: Some(upstream),
            store: Some("memory:".into()),
            ..Flags::default()
        };
        load(&flags, &[]).unwrap()
    }

    #[tokio::test]
    async fn a_legacy_server_is_asked() {
        let stop = CancellationToken::new();
        let server = DemoServer::start(&TaskTracker::new(), stop).await.unwrap();
        let found = inspect(&config(server.url())).await.unwrap();
        assert_eq!(found.era, Era::Legacy);
        assert_eq!(found.server.as_deref(), Some("slow-server 1.0"));
        assert_eq!(found.capabilities, ["tools"]);
        assert_eq!(
            found.tool_names(),
            ["ask_name", "build_report", "sleep_forever"]
        );
    }

    #[tokio::test]
    async fn nobody_there() {
        // The socket is bound and dropped, so that nothing listens on the port.
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", socket.local_addr().unwrap());
        drop(socket);
        assert_eq!(
            inspect(&config(url)).await.unwrap_err(),
            "The server could not be reached: Connection refused; the server does not run there"
        );
    }
}
