//! CALLS THAT ARE CARRIED: what runs here for a client, however its connection fares.

pub mod cancel;
pub mod registry;
pub mod resumable;
