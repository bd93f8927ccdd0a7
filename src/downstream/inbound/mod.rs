//! A client's request: where it came in, its requester, its content, and its route. Pure.

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
