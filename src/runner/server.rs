//! The port to the wrapped server: what the runner needs of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;

use crate::mcp::version::Era;
use crate::upstream::wrapped::Upstream;
use crate::upstream::{Exchange, Forwarded, Seat, Seating, UpstreamRequest};

/// The wrapped server, as the runner sees it. A simulation has another one.
#[async_trait]
pub trait WrappedServer: fmt::Debug + Send + Sync {
    /// The place of a call at the server, or how the call waits for it. Nothing is sent. `None`: the call waits until
    /// the era is known, too.
    fn seat(&self, era: Option<Era>, outgoing: &UpstreamRequest) -> Seating;

    /// Opens an exchange. The request goes out on the first poll of its events.
    fn begin(&self, seat: Seat, outgoing: Arc<UpstreamRequest>) -> Exchange;

    /// Opens the exchange of a task that the server made of the call; `None`: `answer` names no task.
    fn follow(&self, call: &Arc<UpstreamRequest>, answer: &RawValue) -> Option<Exchange>;

    /// Opens the exchange of a call that another process sent; `None`: the resume point is of no use. `from`: what the server
    /// gets of a request of the client.
    fn adopt(&self, caller: [u8; 16], resume_point: &str, from: Forwarded) -> Option<Exchange>;

    fn known_era(&self) -> Option<Era>;

    /// Asks the server for its era.
    async fn ask_era(&self);

    /// The `serverInfo` that the server last gave to this caller.
    fn server_info(&self, caller: [u8; 16]) -> Option<Box<RawValue>>;

    /// The time that a server which has to be started first takes at most.
    fn start_allowance(&self) -> Duration;
}

#[async_trait]
impl WrappedServer for Upstream {
    fn seat(&self, era: Option<Era>, outgoing: &UpstreamRequest) -> Seating {
        Self::seat(self, era, outgoing)
    }

    fn begin(&self, seat: Seat, outgoing: Arc<UpstreamRequest>) -> Exchange {
        Self::begin_at(self, seat, outgoing)
    }

    fn follow(&self, call: &Arc<UpstreamRequest>, answer: &RawValue) -> Option<Exchange> {
        Self::follow(self, call, answer)
    }

    fn adopt(&self, caller: [u8; 16], resume_point: &str, from: Forwarded) -> Option<Exchange> {
        Self::adopt(self, caller, resume_point, from)
    }

    fn known_era(&self) -> Option<Era> {
        Self::known_era(self)
    }

    async fn ask_era(&self) {
        // After a failure the next sweep asks again.
        let _ = self.era(None).await;
    }

    fn server_info(&self, caller: [u8; 16]) -> Option<Box<RawValue>> {
        self.last_discovered(caller)?.server_info.clone()
    }

    fn start_allowance(&self) -> Duration {
        Self::start_allowance(self)
    }
}
