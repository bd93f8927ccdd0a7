//! Administration: the listener for an orchestrator's probes, the listener for operators, the health of the process,
//! and its drain.
//!
//! The probe listener reads no task and speaks no MCP, so other machines may reach it. The admin listener is for
//! operators, who also see and change tasks there: off loopback it has a token.

mod about;
pub mod admit;
mod board;
mod body;
pub mod degraded;
pub mod drain;
mod events;
pub mod health;
mod listener;
pub mod operator;
pub mod probes;
mod route;
mod tasks;
pub mod token;
mod tools;

pub use listener::Listener;
