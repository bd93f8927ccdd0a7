//! Tells receivers of the states of tasks, as `[[notify]]` says: signed webhooks (Standard Webhooks).
//!
//! What must be told, to whom and when is in the record of the task (`task/notices`). Here are the jobs that tell it, one
//! for each receiver.

pub mod body;
mod delivery;
mod receiver;
pub mod signature;

pub use delivery::tell;
pub use receiver::Receiver;
