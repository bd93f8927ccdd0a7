//! The configuration that the program runs on: parsed, checked and complete.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderName;
use ipnet::IpNet;

use super::fingerprints::Fingerprints;
use super::log_format::LogFormat;
use super::problem::ConfigError;
use super::ratio::Ratio;
use super::secret::Secret;
use super::server::Wrapped;
use super::settings_events::EventSettings;
use super::settings_store::StoreSettings;
use super::settings_tls::CertificateFiles;
use super::settings_upstream::{Header, UpstreamSettings};
use super::source::Source;
use super::trace_protocol::TraceProtocol;
use crate::auth::algorithm::Algorithm;
use crate::auth::public::PublicAddress;
use crate::notify::signature::WebhookSecret;
use crate::task::glob::Glob;
use crate::task::notices::{NoticeState, ReceiverId};
use crate::task::policy::Rules;

/// All settings, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: ListenSettings,
    pub upstream: UpstreamSettings,
    pub store: StoreSettings,
    pub rules: Rules,
    pub companion: Option<CompanionSettings>,
    pub replica: ReplicaSettings,
    pub drain: DrainSettings,
    pub admin: AdminSettings,
    /// How much is kept of tasks that have ended. `None`: nothing.
    pub history: Option<HistorySettings>,
    pub auth: AuthSettings,
    pub limits: LimitSettings,
    pub notify: Vec<NotifySettings>,
    /// The settings of the MCP Events extension for clients that identify themselves. `None`: they do not have it.
    pub events: Option<EventSettings>,
    pub telemetry: TelemetrySettings,
    /// The settings that have no effect in this configuration, each with the reason.
    pub unused: Vec<(&'static str, &'static str)>,
    /// All settings as they were written, or else their defaults, without secrets.
    pub shown: Arc<serde_json::Value>,
    /// By which a change of a setting is seen.
    pub(super) fingerprints: Arc<Fingerprints>,
    /// Where the settings came from.
    pub source: Source,
    /// The variables that look like settings and are not read, each with what to do.
    pub ignored: Vec<(String, String)>,
}

impl Config {
    /// Refuses a listener beyond loopback without authentication, unless the operator allows anonymous
    /// clients: every client that reaches such a listener can call every tool.
    pub fn refuse_exposure(&self) -> Result<(), ConfigError> {
        if self.listen.is_loopback() || self.auth.asks() || self.auth.allow_anonymous {
            return Ok(());
        }
        Err(ConfigError::new(format!(
            "listen.address: {} can be reached from other machines, and raincheck does not check \
             who calls: set auth.tokens_file or [[auth.jwt]], or listen on 127.0.0.1, or \
             set auth.allow_anonymous = true if something in front of it does",
            self.listen.address
        )))
    }
}

impl Config {
    /// Refuses rules that cannot hold in a process that began with `running`: it asks no client for a token with
    /// scopes.
    pub fn refuse_unheld_scopes(&self, running: &AuthSettings) -> Result<(), ConfigError> {
        if running.takes_tokens() || !self.rules.wants_scopes() || !self.auth.takes_tokens() {
            return Ok(());
        }
        Err(ConfigError::new(
            "scopes: nobody is asked for a token yet; auth needs a restart first",
        ))
    }

    /// Refuses raincheck's own listener as the server: raincheck would send each request to itself without
    /// end. A circle through other names or machines is found later, by [`Via`](hyper::header::VIA).
    pub fn refuse_circle(&self) -> Result<(), ConfigError> {
        let Wrapped::Url(url) = &self.upstream.server else {
            return Ok(());
        };
        let usual = if url.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let listens = self.listen.address;
        let host = url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_us = if host.eq_ignore_ascii_case("localhost") {
            listens.ip().is_unspecified() || self.listen.is_loopback()
        } else {
            host.parse::<IpAddr>().is_ok_and(|ip| {
                let (ip, own) = (ip.to_canonical(), listens.ip().to_canonical());
                // A connection to 0.0.0.0 leads to this machine, and a listener there takes those to loopback, too.
                ip == own || ip.is_unspecified() || (own.is_unspecified() && ip.is_loopback())
            })
        };
        // With port 0 the system chooses the port, which no URL can name.
        if listens.port() == 0 || url.port_u16().unwrap_or(usual) != listens.port() || !is_us {
            return Ok(());
        }
        Err(ConfigError::new(format!(
            "upstream.url: {listens} is where raincheck itself listens; write the address of the \
             MCP server, or change listen.address"
        )))
    }
}

/// Where clients reach raincheck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    pub address: SocketAddr,
    /// Starts with `/`.
    pub path: String,
    /// By which clients know raincheck.
    pub public_url: Option<PublicAddress>,
    /// `true` if cleartext HTTP/2 with prior knowledge is served, in addition to HTTP/1.1.
    pub h2c: bool,
    /// Allowed `Host` names and addresses, in addition to loopback and the listen address: lower case,
    /// without port and brackets.
    pub allowed_hosts: Vec<String>,
    /// Allowed `Origin` values, in addition to loopback: lower case, `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-*` headers and the like are passed on.
    pub trusted_proxies: Vec<IpNet>,
    pub tls: Option<CertificateFiles>,
}

impl ListenSettings {
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// The companion tools, by which clients without Tasks follow calls that take long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompanionSettings {
    pub used: CompanionUse,
    /// The beginning of the names of the tools if the server has a tool of one of their names.
    pub prefix: String,
}

/// Which clients have companion tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompanionUse {
    /// Those that are known to give up early and cannot be helped in another way.
    KnownToNeed,
    /// These, and those that are not known: what launches raincheck is most often a host with a model.
    AllButKnownNotTo,
    /// All that do not declare Tasks.
    Always,
}

/// The settings of this replica among the replicas of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSettings {
    pub id: String,
    pub lease: Duration,
}

/// The settings for the stop of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// The time that the process serves as usual after the signal.
    pub delay: Duration,
    /// After `delay`, how long calls may take to end.
    pub grace: Duration,
    /// The token of `GET /drain/<token>` on the probe listener. `None`: that path does not exist.
    pub token: Option<Secret>,
}

/// The probes for operators and orchestrators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address of the probe listener. It may be any address, because the listener serves nothing else.
    pub probes: Option<SocketAddr>,
    /// Where operators are answered, if at all. Off loopback there is a token.
    pub listen: Option<SocketAddr>,
    /// The token of an operator without a name, who may do everything.
    pub token: Option<Secret>,
    pub operators: Vec<NamedOperator>,
    /// `true` if operators see arguments and results of tasks.
    pub show_payloads: bool,
    /// `true` if the process is not ready while the store is away, even after the store was reached once.
    pub ready_needs_store: bool,
}

impl AdminSettings {
    /// Returns `true` if a request of an operator must contain a token.
    pub fn asks(&self) -> bool {
        self.token.is_some() || !self.operators.is_empty()
    }
}

/// An operator with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedOperator {
    pub name: Arc<str>,
    pub token: Secret,
    pub role: OperatorRole,
}

/// The rights of an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperatorRole {
    /// Sees everything and changes nothing.
    Read,
    #[default]
    Act,
}

/// How much is kept of tasks that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySettings {
    pub keep: Duration,
    /// The most entries, about.
    pub entries_max: usize,
}

/// The settings that decide which clients may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSettings {
    pub allow_anonymous: bool,
    /// The names of clients and the hashes of their tokens.
    pub tokens_file: Option<PathBuf>,
    /// The roots that sign the certificates of clients.
    pub client_roots: Option<PathBuf>,
    /// Headers that are credentials of a client, beside `Authorization`.
    pub credential_headers: Vec<HeaderName>,
    /// The issuers of tokens that count.
    pub jwt: Vec<JwtSettings>,
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// The claim `iss`, exactly.
    pub issuer: String,
    /// Where its keys are: https, or on loopback.
    pub jwks: Uri,
    /// A token is for one of these.
    pub audience: Vec<String>,
    pub algorithms: Vec<Algorithm>,
    /// Claims that are part of who the client is.
    pub caller_claims: Vec<String>,
    /// The claim that operators know the client by.
    pub label_claim: Option<String>,
    /// Trusted for `jwks` instead of the machine's roots.
    pub roots: Option<PathBuf>,
}

impl AuthSettings {
    /// Returns `true` if a client can have scopes: certificates have none.
    pub fn takes_tokens(&self) -> bool {
        self.tokens_file.is_some() || !self.jwt.is_empty()
    }

    /// Returns `true` if a client must identify itself.
    pub fn asks(&self) -> bool {
        self.tokens_file.is_some() || self.client_roots.is_some() || !self.jwt.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    pub body_bytes_max: usize,
    /// The bound of requests that are read and answers that are written, together.
    pub buffer_bytes_max: usize,
    pub calls: usize,
    pub connections: usize,
    /// The most calls under way of one caller, where clients must identify themselves.
    pub calls_per_caller: usize,
    /// The most requests at the same time of one caller, where clients must identify themselves.
    pub requests_per_caller: usize,
    pub header_timeout: Duration,
    pub listen_task_ids: usize,
    /// The most polls that are held at the same time.
    pub held_polls: usize,
    /// The quota of kept tasks that this process made.
    pub tasks: Quota,
    pub tasks_per_caller: Quota,
}

/// A receiver of webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifySettings {
    pub receiver: ReceiverId,
    /// http or https. Its path and its query may be secret.
    pub url: Uri,
    /// One or two, the newest first.
    pub secrets: Vec<WebhookSecret>,
    pub states: Vec<NoticeState>,
    pub tools: Vec<Glob>,
    pub retry_for: Duration,
    /// `true` if the receiver may be at an address of this machine or its network.
    pub allow_private: bool,
}

/// A bound of a number and of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub entries: usize,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Levels, in general and by module: `info`, `info,raincheck=debug`.
    pub log: String,
    pub format: LogFormat,
    /// `true` if each request of a client has a line in the log.
    pub access_log: bool,
    /// `None`: no span is made.
    pub traces: Option<TraceSettings>,
}

/// Where spans go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    pub endpoint: Uri,
    pub protocol: TraceProtocol,
    pub headers: Vec<Header>,
    /// The roots to trust instead of the machine's roots.
    pub roots: Option<PathBuf>,
    pub ratio: Ratio,
    /// The attributes that describe this process, the service's name first.
    pub resource: Vec<(String, String)>,
}
