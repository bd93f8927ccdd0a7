//! THE CLIENTS WE SERVE: from a request to the part that answers it.

mod body;
mod call;
pub mod calls;
mod claims;
pub mod companion;
mod discover;
mod dispatch;
mod door;
mod edited;
pub mod facade;
pub mod inbound;
mod intake;
pub mod legacy;
mod lingering;
mod open;
mod outbound;
mod pass;
mod patient;
mod proxy;
mod related;
mod sent;
pub mod server;
pub mod stand_ins;
pub mod stdio;
mod subscriptions;
pub mod tasks;
mod tools;
mod unread;
pub mod way;

pub use proxy::{Front, Settings};
