//! The configuration. `file` is what the user wrote, [`load`] finds and merges the layers, and `settings` is
//! what the program runs on. Only `app` and `cli` import it: every other part takes a small struct of its
//! own.

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
pub use server::{Wrapped, WrappedCommand};
pub use settings::{
    AdminSettings, AuthSettings, CertificateFiles, CompanionSettings, Config, DrainSettings,
    EraChoice, Header, JwtSettings, LimitSettings, ListenSettings, Location, LogFormat,
    NativeTasks, Quota, ReplicaSettings, SessionUse, StoreSettings, StoreTls, TelemetrySettings,
    TransportChoice, UpstreamSettings, UpstreamTls, WaitSettings,
};
pub use unix::Socket;
