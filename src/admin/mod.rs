//! WHO LOOKS AFTER US: what an orchestrator asks of the process, on a listener of its own.
//!
//! Nothing here reads a task or speaks MCP, so the listener may be reached from other machines.

pub mod drain;
pub mod health;
pub mod server;
