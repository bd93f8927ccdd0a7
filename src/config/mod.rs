//! The configuration: what the user wrote is `file`, how it is found and layered [`load`], and what
//! the program runs on `settings`. Named by `app` and `cli` only: every part takes a small struct of
//! its own.

mod auth;
mod checked;
mod common;
mod companion;
mod concurrency;
mod duration;
mod file;
mod headers;
mod host;
pub mod load;
mod problem;
mod rules;
mod scalar;
mod secret;
mod server;
mod settings;
mod store;
mod unix;
mod unused;
mod wrapped;

pub use problem::ConfigError;
pub use secret::{SealKey, Secret};
pub use server::{Command, Wrapped};
pub use settings::{
    Admin, Auth, Companion, Config, Drain, EraChoice, Header, Jwt, Limits, Listen, Location,
    LogFormat, NativeTasks, Quota, Replica, SessionUse, Store, StoreTls, Telemetry, Tls,
    TransportChoice, Upstream, UpstreamTls, Wait,
};
pub use unix::Socket;
