//! THE SERVER WE WRAP: what the rest of raincheck may name of it.

mod cache;
pub mod channel;
pub mod client_session;
mod connect;
mod describe;
mod discovered;
mod exchange;
mod failures;
mod forward;
mod handshake;
mod heard;
mod hop;
pub mod http;
mod inflight;
mod initialize;
mod known;
mod listen;
mod memory;
mod message;
mod no_session;
mod obstacle;
mod origin;
mod pin;
mod pinned;
mod port;
mod probe;
pub mod reconnect;
mod refusal;
pub mod relay;
mod remembered;
mod request_id;
mod retry_after;
mod server;
mod session;
mod session_calls;
mod sessions;
mod sessions_taken;
mod settings;
mod sse;
mod standing;
pub mod stdio;
mod translate;
mod turns;
mod unfold;
mod wanted;
pub mod wrapped;

pub use forward::ClientHeaders;
pub use obstacle::Obstacle;
pub use pin::Pin;
pub use port::{
    Answer, CANCELLING, Control, Event, Exchange, Forwarded, Outgoing, Question, Retry,
    UpstreamError,
};
