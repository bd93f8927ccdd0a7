//! THE SERVER WE WRAP: what the rest of raincheck may name of it.

mod cache;
pub mod channel;
pub mod client_session;
mod connect;
mod describe;
mod discovered;
mod failures;
mod forward;
mod handshake;
mod heard;
mod hop;
pub mod http;
mod known;
mod later;
mod legacy;
mod listen;
mod memory;
mod message;
mod modern;
mod native;
mod no_session;
mod obstacle;
mod origin;
mod pin;
mod pinned;
mod port;
mod probe;
mod refusal;
pub mod relay;
mod remembered;
mod request_id;
mod server;
mod session;
mod sessions;
mod sessions_taken;
mod settings;
mod sse;
pub mod stdio;
mod translate;
mod turns;
mod wanted;
pub mod wrapped;

pub use forward::ClientHeaders;
pub use obstacle::Obstacle;
pub use pin::Pin;
pub use port::{
    Answer, CANCELLING, Control, Event, Exchange, Forwarded, Outgoing, Question, Retry,
    UpstreamError,
};
