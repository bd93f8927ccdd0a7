//! THE SERVER WE WRAP: what the rest of raincheck may name of it.

mod cache;
pub mod channel;
pub mod client_session;
mod discovery;
mod exchange;
mod failures;
mod forward;
mod heard;
pub mod http;
mod inflight;
mod initialize;
mod listen;
mod message;
mod no_session;
mod obstacle;
mod pin;
mod pool;
mod port;
pub mod reconnect;
pub mod relay;
mod request_id;
mod server;
mod sessions;
mod settings;
mod sse;
pub mod stdio;
mod translate;
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
