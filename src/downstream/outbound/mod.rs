//! The messages to clients: answers, errors and streams of events.

pub(super) mod keepalive;
pub(super) mod passed_call;
mod passed_events;
pub(super) mod passed_heartbeat;
pub(super) mod patience;
pub(super) mod response;
pub(super) mod send;
pub(super) mod stream;
