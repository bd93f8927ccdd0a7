//! KNOWN CLIENTS: the known facts about a client by the name that it gives itself, and the settings for it where the
//! operator has set nothing else. Pure.
//!
//! A client can give itself any name. So none of its rights depends on its name: only the way it is notified
//! of a call that takes long.

mod client;
mod lookup;
mod table;
mod terms;

pub use client::{Evidence, FoundOut, KnownClient, KnownTasks, OnProgress, Patience};
pub use table::CLIENTS;
pub use terms::{Choice, ClientTerms};
