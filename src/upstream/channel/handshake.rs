//! How a line begins with a legacy server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::super::discovered::Discovered;
use super::super::failures::UNREACHABLE;
use super::super::no_session::NoSession;
use super::super::port::UpstreamError;
use super::ask::ask;
use super::requests::Channel;
use super::said::Said;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::{Object, string};
use crate::upstream::initialize;

/// How long a server's handshake may take: `npx -y` may have to fetch it first.
pub(super) const START_PATIENCE: Duration = Duration::from_mins(1);

/// The line, once a legacy server has agreed on it; a modern one need not.
pub(super) async fn agreed(
    channel: Arc<Channel>,
    capabilities: Option<Arc<str>>,
) -> Result<Arc<Channel>, NoSession> {
    if let Some(capabilities) = capabilities {
        let shaken = timeout(START_PATIENCE, handshake(&channel, &capabilities)).await;
        let shaken = shaken.unwrap_or(Err(NoSession::Failed(UNREACHABLE)));
        if let Err(why) = shaken {
            channel.close();
            return Err(why);
        }
    }
    Ok(channel)
}

/// A legacy server is told who we are, and says who it is.
async fn handshake(channel: &Arc<Channel>, capabilities: &str) -> Result<(), NoSession> {
    let invalid = || NoSession::Failed(Failure::new(Reason::UpstreamInvalid, SideEffect::None));
    let result = match ask(channel, "initialize", &initialize::params(capabilities)).await {
        Said::Result(result) => result,
        Said::Error(error) => {
            return Err(NoSession::Error(UpstreamError::in_message(error)));
        }
        Said::Refused(error) => return Err(NoSession::Error(error)),
        Said::Unsent(_) | Said::Failed(_) => return Err(NoSession::Failed(UNREACHABLE)),
        Said::Progress(_) | Said::Log(_) | Said::Notice(_) | Said::Question(_) => {
            return Err(invalid());
        }
    };
    let object = Object::parse(result.get()).map_err(|_| invalid())?;
    object
        .get("protocolVersion")
        .and_then(string)
        .ok_or_else(invalid)?;
    let described = Discovered::of_initialize(&object).ok_or_else(invalid)?;
    // The first and only one.
    let _ = channel.described.set(Arc::new(described));
    let ready = envelope::notification("notifications/initialized", "{}");
    channel.tell(ready).await;
    Ok(())
}
