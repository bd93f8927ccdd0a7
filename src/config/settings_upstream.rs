//! The settings of the wrapped server that the program runs on.

use std::path::PathBuf;
use std::time::Duration;

use hyper::header::HeaderName;

use super::secret::Secret;
use super::server::Wrapped;
use super::settings_tls::ClientTlsFiles;
use crate::task::policy::Limit;

/// The wrapped server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamSettings {
    pub server: Wrapped,
    pub transport: TransportChoice,
    pub tls: ClientTlsFiles,
    /// HTTP/2 to a server with an address, and no other version.
    pub http2: bool,
    /// Headers of every request to the server. They replace the client's headers of the same name.
    pub headers: Vec<Header>,
    /// Client headers that also go to a server on another machine, and the forwarding headers that raincheck
    /// writes itself.
    pub forward_headers: Vec<HeaderName>,
    /// The parameters of a client's query that go to the server.
    pub forward_query: Vec<String>,
    pub credentials: UpstreamCredentials,
    pub era: EraChoice,
    pub session: SessionUse,
    pub sessions_max: usize,
    pub connect_timeout: Duration,
    /// The most processes of a command at the same time.
    pub children_max: usize,
    /// The limit of tool calls at the server at the same time, for all tools together.
    pub concurrency: Option<Limit>,
    /// `true` if all replicas reach this same server. If not, each replica has a server of its own.
    pub shared: bool,
    /// `true` if a tool that the server calls read-only or idempotent may be run again.
    pub trust_annotations: bool,
    pub native_tasks: NativeTasks,
    /// The file that keeps what is known of the server for the next run. `None`: there is no state directory.
    pub known_file: Option<PathBuf>,
}

/// A configured header. Its value may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: HeaderName,
    /// The value: visible ASCII and spaces.
    pub value: Secret,
}

/// The part of its clients' credentials that the server receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamCredentials {
    pub used: CredentialUse,
    /// The header in which the server receives the caller.
    pub caller_header: Option<HeaderName>,
}

/// The handling of the clients' credentials on the way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialUse {
    /// The server gets them.
    Forward,
    /// The server gets none.
    Strip,
    /// The server gets the operator's, from `upstream.headers`.
    Static,
}

/// The handling of the server's own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeTasks {
    /// The client's support for tasks is hidden from the server.
    Hide,
    /// The server's task handles go to the client, and requests about them go to the server.
    Pass,
}

/// The transport to a wrapped server with a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportChoice {
    /// Raincheck finds out at the first contact.
    Auto,
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

/// Which era the wrapped server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EraChoice {
    /// Raincheck asks at the first contact.
    Auto,
    Legacy,
    Modern,
}

/// The use of the sessions of a legacy server by translated calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionUse {
    /// Each call takes a free session from a pool.
    Pool,
    /// All calls of a caller share one session, for servers that keep state in it.
    Caller,
}
