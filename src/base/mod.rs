//! Small things that any part may need: time, locks, texts for people, crashes at named places. Nothing here knows MCP.

pub mod account;
pub mod backoff;
pub mod caught;
pub mod clock;
pub mod failpoint;
pub mod io_reason;
pub mod limit_fill;
pub mod lock;
pub mod prehashed;
pub mod printable;
pub mod retry_after;
pub mod unfold;
pub mod utc;
