//! EVENTS: the event of the MCP Events extension that raincheck offers (`task/events`), beside the server's own events.
//!
//! Requests for the server's events pass, and requests for raincheck's event never reach the server. Only a client
//! that identifies itself has the event: an anonymous client must know a task's id to see anything of the task.

pub(super) mod answer;
pub(super) mod capability;
pub(super) mod list;
mod look;
mod poll;
pub(super) mod request;
mod start;
pub mod state;
mod stream;
mod subscribe;
mod subscribe_request;
