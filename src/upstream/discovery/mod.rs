//! What the server is, and what it says of itself: found out once, remembered, and asked again when the server
//! seems to have changed.

mod describe;
pub(super) mod discovered;
pub(super) mod facts;
mod facts_file;
pub(super) mod legacy_sessions;
pub(super) mod probe;
mod remembered;
mod sessions_taken;
