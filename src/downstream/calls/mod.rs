//! CALLS THAT ARE CARRIED: what runs here for a client, however its connection fares.

pub mod cancel;
pub(in crate::downstream) mod item;
pub(in crate::downstream) mod kept;
pub mod registry;
pub mod resumable;
pub(in crate::downstream) mod server_answer;
