//! KNOWN CLIENTS: what is known of a client by the name that it gives itself, and what it gets where the operator has not said
//! otherwise. Pure.
//!
//! A client can give itself any name. So nothing that it may do depends on its name: only how it hears of a call that
//! takes long.

mod client;
mod lookup;
mod table;
mod terms;

pub use client::{Basis, FoundOut, KnownClient, KnownTasks, OnProgress, Patience};
pub use table::CLIENTS;
pub use terms::{Choice, ClientTerms};
