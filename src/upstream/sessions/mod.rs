//! Sessions at a legacy server over Streamable HTTP: one session, the pool of raincheck's own sessions, and the
//! server's messages on a session outside of a call's own stream.

pub(super) mod calls;
mod doubt;
pub(super) mod pinned;
pub(super) mod pool;
pub(super) mod proof;
mod server_stream;
pub(super) mod session;
pub(super) mod stream_attempt;
