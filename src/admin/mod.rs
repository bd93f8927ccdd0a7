//! Administration: the listener for an orchestrator's probes, the health of the process, and its drain.
//!
//! Nothing here reads a task or speaks MCP, so other machines may reach this listener.

pub mod drain;
pub mod health;
pub mod server;
