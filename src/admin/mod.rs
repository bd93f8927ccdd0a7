//! Administration: the listener for an orchestrator's probes, the listener for operators, the health of the process,
//! and its drain.
//!
//! The probe listener reads no task and speaks no MCP, so other machines may reach it. The admin listener is for
//! operators: off loopback it has a token.

pub mod drain;
pub mod health;
mod listener;
pub mod operator;
pub mod probes;
pub mod token;

pub use listener::Listener;
