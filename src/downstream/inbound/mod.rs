//! What a client's request is: who sent it, and what it says of itself. Pure.

pub(super) mod idempotency;
pub(super) mod requester;
