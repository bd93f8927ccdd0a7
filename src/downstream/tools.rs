//! The facts about the server that a route needs: those known without a question, and the answers to questions.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::inbound::requester::Requester;
use super::inbound::route::{KnownServer, KnownTools, MissingFact};
use super::proxy::Proxy;
use crate::mcp::tools::Tools;
use crate::upstream::wrapped::DiscoverError;

/// The time that a call waits for the server's list of tools.
const PATIENCE: Duration = Duration::from_secs(5);

/// The server's tools, as a client with these capabilities may see them. `None`: the list cannot be had now.
pub(super) async fn listed(
    proxy: &Arc<Proxy>,
    by: &Requester,
    capabilities: &str,
) -> Option<Arc<Tools>> {
    let caller = *by.caller.as_bytes();
    let listing = proxy
        .upstream
        .tools(caller, by.credentials.clone(), capabilities.into());
    let listed = tokio::time::timeout(PATIENCE, listing).await;
    listed.ok().and_then(Result::ok)
}

/// Returns the known facts about the server without a question.
pub(super) fn known(proxy: &Arc<Proxy>) -> KnownServer {
    KnownServer {
        era: proxy.upstream.known_era(),
        is_decided: proxy.upstream.is_decided(),
        speaks_http: proxy.upstream.speaks_http(),
        tools: KnownTools::NotAsked,
    }
}

/// Asks the server, and adds the answer to what is known.
pub(super) async fn ask(
    proxy: &Arc<Proxy>,
    by: &Requester,
    capabilities: &str,
    question: MissingFact,
    server: &mut KnownServer,
) -> Result<(), DiscoverError> {
    let learnt = match question {
        MissingFact::Era => {
            proxy.upstream.expect(capabilities);
            let era = proxy.upstream.era(by.credentials.clone()).await?;
            KnownServer {
                era: Some(era),
                tools: std::mem::take(&mut server.tools),
                ..known(proxy)
            }
        }
        MissingFact::Tools => KnownServer {
            tools: match listed(proxy, by, capabilities).await {
                Some(tools) => KnownTools::Listed(tools),
                None => KnownTools::Unavailable,
            },
            ..known(proxy)
        },
    };
    *server = learnt;
    Ok(())
}

/// Asks until that time. True: the server has not answered by then. It is asked all the same, and a task waits for that.
pub(super) async fn in_time(
    asking: impl Future<Output = Result<(), DiscoverError>>,
    until: Option<Instant>,
) -> Result<bool, DiscoverError> {
    let asked = match until {
        Some(until) => timeout_at(until, asking).await,
        None => Ok(asking.await),
    };
    asked.map_or(Ok(true), |asked| asked.map(|()| false))
}
