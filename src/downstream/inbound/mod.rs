//! What a client's request is: where it came in, who sent it, what it says, and what becomes of it. Pure.

pub mod access;
pub(super) mod connection_polls;
pub(super) mod envelope;
pub(super) mod idempotency;
pub(super) mod known_client;
pub(super) mod request;
pub(super) mod requester;
pub(super) mod route;
pub(super) mod session_key;

#[cfg(fuzzing)]
pub use request::fuzzed as fuzzed_request;
