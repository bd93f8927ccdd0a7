//! THE CLIENTS WE SERVE: from a request to the part that answers it.

pub mod auth;
mod body;
mod call;
mod cancels;
mod claims;
pub mod companion;
pub mod dialect;
mod discover;
mod dispatch;
mod door;
pub mod facade;
mod heartbeat;
pub mod held;
pub mod inbound;
mod intake;
mod keep_alive;
pub mod legacy;
mod lingering;
mod open;
mod pass;
mod patience;
mod patient;
mod proxy;
mod related;
mod reply;
mod sent;
pub mod server;
pub mod stand_ins;
pub mod stdio;
mod subscriptions;
mod tasks;
mod tools;
mod unread;
pub mod way;

pub use proxy::{Front, Settings};
