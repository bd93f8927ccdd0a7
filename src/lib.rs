//! raincheck: a sidecar reverse proxy that gives unmodified MCP servers the Tasks extension.
//!
//! The product is the program. This library is what the program and its tests are made of: its interface is not promised, and
//! changes with any version.
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::string_slice
    )
)]

pub mod account;
pub mod admin;
pub mod app;
pub mod auth;
pub mod backoff;
pub mod caught;
pub mod cli;
pub mod clock;
pub mod config;
pub mod connection_threads;
pub mod downstream;
pub mod failpoint;
pub mod http_address;
pub mod io_reason;
pub mod jobs;
pub mod lock;
pub mod mcp;
#[cfg(test)]
#[path = "../tests/fuzz/mutator.rs"]
mod mutator;
pub mod notify;
pub mod platform;
pub mod prehashed;
pub mod printable;
pub mod public_address;
pub mod resizable;
pub mod retry_after;
pub mod room;
pub mod runner;
pub mod shares;
pub mod socket;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tls;
pub mod tunnel;
pub mod turns;
pub mod unfold;
pub mod upstream;
