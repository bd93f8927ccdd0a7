//! The configuration the program runs on: parsed, checked, complete.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderName;
use ipnet::IpNet;

use super::problem::ConfigError;
use super::secret::{SealKey, Secret};
use super::server::Wrapped;
use crate::auth::algorithm::Algorithm;
use crate::task::policy::{Limit, Rules};

/// Everything that can be set, and is right.
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
    pub auth: AuthSettings,
    pub limits: LimitSettings,
    pub telemetry: TelemetrySettings,
    /// What is set and does nothing where it stands: the setting, and why.
    pub unused: Vec<(&'static str, &'static str)>,
}

impl Config {
    /// Refuses a listener off loopback where raincheck asks nobody who calls, unless the operator says that it is meant:
    /// every client that reaches the listener can call every tool.
    pub fn exposure(&self) -> Result<(), ConfigError> {
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
    /// Refuses our own listener as the server: each request would be sent again by the one that it is
    /// sent by. What only other names or machines hide is found by [`Via`](hyper::header::VIA).
    pub fn circle(&self) -> Result<(), ConfigError> {
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
                ip == own || ip.is_unspecified() || (own.is_unspecified() && ip.is_loopback())
            })
        };
        if listens.port() == 0 || url.port_u16().unwrap_or(usual) != listens.port() || !is_us {
            return Ok(());
        }
        Err(ConfigError::new(format!(
            "upstream.url: {listens} is where raincheck itself listens; write the address of the \
             MCP server, or change listen.address"
        )))
    }
}

/// Where clients reach us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSettings {
    pub address: SocketAddr,
    /// Starts with `/`.
    pub path: String,
    /// Cleartext HTTP/2 with prior knowledge, beside HTTP/1.1.
    pub h2c: bool,
    /// `Host` names and addresses beyond loopback ones and the listen address, lower case, without
    /// port and brackets.
    pub allowed_hosts: Vec<String>,
    /// `Origin` values beyond loopback ones, lower case, `scheme://host[:port]`.
    pub allowed_origins: Vec<String>,
    /// What they say of a request's way is believed.
    pub trusted_proxies: Vec<IpNet>,
    pub tls: Option<CertificateFiles>,
}

impl ListenSettings {
    pub fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

/// The files of the server certificate, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The wrapped server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    pub server: Wrapped,
    pub transport: TransportChoice,
    pub tls: UpstreamTls,
    /// In every request to it, instead of the client's of the same name.
    pub headers: Vec<Header>,
    /// Client headers that go to a server on another machine, too, and those of a request's way that
    /// raincheck says itself.
    pub forward_headers: Vec<HeaderName>,
    pub era: EraChoice,
    pub session: SessionUse,
    pub sessions_max: usize,
    pub connect_timeout: Duration,
    /// Processes of a command at the same time.
    pub children_max: usize,
    /// Tool calls at the server at once, whichever the tool.
    pub concurrency: Option<Limit>,
    /// All replicas reach this same server; else each has its own.
    pub shared: bool,
    /// What the server calls read-only or idempotent may be run again.
    pub trust_annotations: bool,
    pub native_tasks: NativeTasks,
    /// Where it is kept what the server was, for the next run. `None`: there is no place.
    pub known_file: Option<PathBuf>,
}

/// A header of ours. Its value is as likely as not a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: HeaderName,
    /// A header's value: visible ASCII and spaces.
    pub value: Secret,
}

/// What becomes of a modern server's own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeTasks {
    /// The server never hears that the client knows tasks.
    Hide,
    /// Its handles go to the client, and requests about them to it.
    Pass,
}

/// How a wrapped server with a URL is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChoice {
    /// Found out at the first contact.
    Auto,
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

/// The files for TLS to the wrapped server, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpstreamTls {
    /// Trusted instead of the machine's roots.
    pub roots: Option<PathBuf>,
    /// Who we are.
    pub identity: Option<CertificateFiles>,
}

/// Which era the wrapped server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraChoice {
    /// Asked at the first contact.
    Auto,
    Legacy,
    Modern,
}

/// How translated calls use the sessions of a legacy server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionUse {
    /// One call at a time takes a session from a pool.
    Pool,
    /// All calls of a caller share one, for servers whose session holds state.
    Caller,
}

/// Where tasks live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    pub location: Location,
    /// How long `tasks/get`, `tasks/update` and `tasks/cancel` wait for a store that is away.
    pub read_patience: Duration,
    /// How long a task's creation waits for it.
    pub create_patience: Duration,
    pub allow_eviction: bool,
    /// Under which sessions of the wrapped server are sealed. The embedded store makes its own.
    pub seal_key: Option<SealKey>,
    /// What was sealed under it can still be read.
    pub seal_key_previous: Option<SealKey>,
    pub tls: StoreTls,
    pub wait: WaitSettings,
}

/// The files for TLS to Redis, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreTls {
    /// Trusted instead of the machine's roots.
    pub roots: Option<PathBuf>,
    /// Who we are.
    pub identity: Option<CertificateFiles>,
}

/// What Redis must have done with a task before it counts as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSettings {
    /// So many replicas have it.
    pub replicas: usize,
    /// It is synced to the append-only file.
    pub aof: bool,
    /// Not so in this time: in doubt.
    pub timeout: Duration,
}

impl WaitSettings {
    pub fn is_on(&self) -> bool {
        self.replicas > 0 || self.aof
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Memory,
    /// The file; its directory may not exist yet.
    Embedded(PathBuf),
    /// One of several files of that name, whichever no other process has.
    Slots(PathBuf),
    Redis {
        url: Secret,
        /// Part of every key: two services on one Redis never meet.
        namespace: String,
    },
}

/// Tools of our own, by which clients without Tasks follow calls that take long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompanionSettings {
    /// Before the names of all of them, where the server has a tool of one of the names.
    pub prefix: String,
    /// After so long a client without Tasks gets a ticket, where no `[[tools]]` says otherwise.
    pub fallback_after: Duration,
}

/// This replica among others on one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSettings {
    pub id: String,
    pub lease: Duration,
}

/// How it stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSettings {
    /// Accepts and serves as usual for so long after the signal.
    pub delay: Duration,
    /// Then calls get so long to end.
    pub grace: Duration,
    /// What a `GET /drain/<token>` on the probe listener must name; without it there is none.
    pub token: Option<Secret>,
}

/// What operators and orchestrators ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    /// Where probes are answered, if at all. Off loopback is fine: nothing else is served there.
    pub probes: Option<SocketAddr>,
    /// Not ready while the store is away, also after it was reached.
    pub ready_needs_store: bool,
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSettings {
    pub allow_anonymous: bool,
    /// The names of clients and the hashes of their tokens.
    pub tokens_file: Option<PathBuf>,
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
    /// Whether a client must say who it is.
    pub fn asks(&self) -> bool {
        self.tokens_file.is_some() || !self.jwt.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    pub body_bytes_max: usize,
    /// Of requests that are read and answers that are written, together.
    pub buffer_bytes_max: usize,
    pub calls: usize,
    pub connections: usize,
    pub header_timeout: Duration,
    pub listen_task_ids: usize,
    /// What this process may have made of tasks that are kept.
    pub tasks: Quota,
    pub tasks_per_caller: Quota,
}

/// How many, and how many bytes of them.
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}
