//! The configuration. `file` is what the user wrote, [`load`] finds and merges the layers, and `settings` is
//! what the program runs on. Only `app` and `cli` import it: every other part takes a small struct of its
//! own.

mod auth;
mod changes;
mod checked;
mod common;
mod companion;
mod concurrency;
mod credentials;
mod described;
mod duration;
mod events;
mod file;
mod file_auth;
mod file_jobs;
mod file_notify;
mod file_store;
mod file_telemetry;
mod file_tls;
mod fingerprints;
pub mod fitting;
mod headers;
mod host;
mod ignored;
mod jobs;
mod layer;
mod limits;
pub mod load;
mod log_format;
mod notify;
mod otel;
mod port;
mod presets;
mod problem;
mod public;
mod query;
mod ratio;
mod rules;
mod rules_file;
mod scalar;
pub mod schema;
mod secret;
mod secret_files;
mod server;
mod settings;
mod settings_events;
mod settings_store;
mod settings_tls;
mod settings_upstream;
mod show;
mod source;
mod store;
mod telemetry;
mod tokens;
mod trace_protocol;
mod traces;
mod unix;
mod unused;
pub mod warnings;
mod wrapped;

pub use changes::ChangedSetting;
pub use duration::{duration, duration_text, size_text};
pub use limits::half;
pub use log_format::LogFormat;
pub use port::has_right_port;
pub use problem::ConfigError;
pub use ratio::Ratio;
pub use secret::{SealKey, Secret};
pub use server::{Wrapped, WrappedCommand};
pub use settings::{
    AdminSettings, AuthSettings, CompanionSettings, CompanionUse, Config, DrainSettings,
    HistorySettings, JwtSettings, LimitSettings, ListenSettings, NamedOperator, NotifySettings,
    OperatorRole, Quota, ReplicaSettings, TelemetrySettings, TraceSettings,
};
pub use settings_events::EventSettings;
pub use settings_store::{Location, Seal, StoreSettings, WaitSettings};
pub use settings_tls::{CertificateFiles, ClientTlsFiles};
pub use settings_upstream::{
    CredentialUse, EraChoice, Header, NativeTasks, SessionUse, TransportChoice,
    UpstreamCredentials, UpstreamSettings,
};
pub use trace_protocol::TraceProtocol;
pub use unix::Socket;
