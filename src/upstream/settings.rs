//! The settings of the upstream side.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderName;

use crate::mcp::version::Era;
use crate::tls::kept::Kept;
use crate::upstream::stdio::Program;

/// The settings of the upstream side.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Not used if there is a command.
    pub url: String,
    /// Connected to instead of the URL's host.
    pub socket: Option<PathBuf>,
    /// The TLS client for https. `None`: the machine's roots.
    pub tls: Option<Arc<Kept<rustls::ClientConfig>>>,
    /// HTTP/2 to the server: with prior knowledge, or by ALPN with https. No other version is spoken then.
    pub http2: bool,
    /// Sent with every request, instead of the client's of the same name.
    pub headers: HeaderMap,
    /// `true` if the server receives its clients' credentials. `None`: only a local server does, and only without
    /// configured credentials.
    pub forwards_credentials: Option<bool>,
    /// Headers that are credentials, beside `Authorization`.
    pub credential_headers: Arc<[HeaderName]>,
    /// The header in which raincheck names the caller to the server.
    pub caller_header: Option<HeaderName>,
    /// Client headers that go to a server on another machine, too.
    pub forward_headers: Vec<HeaderName>,
    /// The parameters of a client's query that go to the server.
    pub forward_query: Vec<String>,
    /// The program to run in place of a server with an address.
    pub command: Option<Program>,
    /// The maximum number of processes of the program that may run at the same time.
    pub children_max: usize,
    pub transport: Transport,
    /// The era of the server. `None`: it is found out.
    pub era: Option<Era>,
    pub session: SessionMode,
    pub sessions_max: usize,
    /// The maximum number of these processes for one caller. `None`: callers are not verified.
    pub children_of_each_caller: Option<usize>,
    /// The maximum number of the sessions for one caller.
    pub sessions_of_each_caller: Option<usize>,
    /// The time that a call waits for a session when all are in use.
    pub session_wait: Duration,
    pub connect_timeout: Duration,
    /// A message of the server that is larger ends its call.
    pub message_bytes_max: usize,
    /// The file that keeps what the server was, for the next run. `None`: nothing is kept.
    pub known_file: Option<PathBuf>,
    /// The caller that stands for all callers without credentials. What is kept in the file is for this caller.
    pub anonymous: [u8; 16],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: String::new(),
            socket: None,
            tls: None,
            http2: false,
            headers: HeaderMap::new(),
            forwards_credentials: None,
            credential_headers: [].into(),
            caller_header: None,
            forward_headers: Vec::new(),
            forward_query: Vec::new(),
            command: None,
            children_max: 32,
            transport: Transport::Auto,
            era: None,
            session: SessionMode::Pool,
            sessions_max: 256,
            children_of_each_caller: None,
            sessions_of_each_caller: None,
            session_wait: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            message_bytes_max: 32 << 20,
            known_file: None,
            anonymous: [0; 16],
        }
    }
}

/// The transport to a server with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The transport is found out with the era. If the era is configured, it is Streamable HTTP.
    Auto,
    StreamableHttp,
    /// HTTP+SSE of revision 2024-11-05.
    Sse,
}

/// The sharing of a legacy server's sessions among translated calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionMode {
    /// One call at a time takes a session.
    Pool,
    /// All calls of a caller share one session, for servers whose session holds state.
    Caller,
}
