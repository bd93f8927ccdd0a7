//! THE CLIENTS WE SERVE: from a request to the part that answers it.

mod access_log;
#[cfg(feature = "measure")]
#[doc(hidden)]
pub mod bench_hooks;
mod body;
pub mod calls;
mod claims;
pub mod companion;
mod cors;
mod discover;
mod dispatch;
mod durations;
mod edited;
mod endpoint;
pub mod events;
pub mod forwarded;
mod giving_way;
mod held_polls;
pub mod inbound;
mod large_results;
mod lingering;
mod metadata;
mod modern_call;
mod open_requests;
mod outbound;
mod passed_body;
mod passing;
mod passthrough;
mod plaintext;
mod proxy;
mod related;
mod request_body;
mod response_body;
mod scopes;
pub mod server;
pub mod sessions;
mod slow_reader;
pub mod stand_ins;
pub mod stdio;
mod strict;
mod subscriptions;
pub mod tasks;
mod tools;
mod traced;

pub use held_polls::HeldPolls;
pub use proxy::{FairShares, LiveSettings, Proxy, ProxySettings};
