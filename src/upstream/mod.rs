//! THE SERVER WE WRAP: what the rest of raincheck may name of it.

mod bench_hooks;
mod cache;
pub mod client_session;
mod credentials;
mod discovery;
mod envelope_scan;
mod exchange;
mod failures;
mod forward;
pub mod http;
mod http_response;
mod inflight;
mod initialize;
mod json_body;
pub mod line;
mod listen;
mod look;
mod message;
mod no_session;
mod obstacle;
mod pin;
mod pool;
mod port;
mod query;
mod reader_queue;
pub mod reconnect;
pub mod relay;
mod request_id;
mod seat;
mod seating;
mod server;
mod server_message;
mod sessions;
mod settings;
mod single_flight;
mod sse;
pub mod stdio;
mod translate;
mod wanted;
pub mod wrapped;

pub use credentials::{CredentialRule, Credentials};
pub use exchange::NoopControl;
pub use forward::{ClientHeaders, listed};
pub use obstacle::Obstacle;
pub use pin::Pin;
pub use port::{
    Answer, CANCELLING, Control, Event, Exchange, Forwarded, Keep, Question, Retry, UpstreamError,
    UpstreamRequest,
};
pub use seat::Seat;
pub use seating::{SeatNews, SeatWait, Seating};
