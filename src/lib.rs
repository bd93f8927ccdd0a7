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

pub mod admin;
pub mod app;
pub mod auth;
pub mod base;
pub mod cli;
pub mod config;
pub mod downstream;
pub mod jobs;
pub mod mcp;
#[cfg(test)]
#[path = "../tests/fuzz/mutator.rs"]
mod mutator;
pub mod net;
pub mod notify;
pub mod platform;
pub mod runner;
pub mod sharing;
pub mod store;
pub mod task;
pub mod telemetry;
pub mod tls;
pub mod upstream;
