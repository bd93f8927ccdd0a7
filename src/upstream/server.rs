//! The server and its transport: as configured, or as found out by the first request.

use std::sync::{Arc, OnceLock};

use hyper::Uri;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::base::limit_fill::{CHILDREN, SESSIONS};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;
use crate::upstream::client_session::registry::ClientSessions;
use crate::upstream::credentials::{CredentialRule, Credentials};
use crate::upstream::discovery::legacy_sessions;
use crate::upstream::discovery::probe;
use crate::upstream::discovery::probe::{Found, Undecided};
use crate::upstream::exchange::{borrowed_line, line, modern, session};
use crate::upstream::failures::OTHER_ORIGIN;
use crate::upstream::http::Http;
use crate::upstream::http::connect::{Connector, UrlError};
use crate::upstream::http::origin::Origin;
use crate::upstream::line::{LineServer, LineSource};
use crate::upstream::no_session::SessionError;
use crate::upstream::pool::{PoolKey, PoolLimits, Sharing};
use crate::upstream::port::{Exchange, UpstreamRequest};
use crate::upstream::seat::SeatPlace;
use crate::upstream::sessions::pool::HttpSessionPool;
use crate::upstream::settings::{SessionMode, Settings, Transport};
use crate::upstream::sse::Dialer;
use crate::upstream::stdio::child::ProcessLauncher;
use crate::upstream::stdio::spawner::Spawner;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Server {
    Http(Arc<HttpServer>),
    Program(Arc<LineServer>),
}

/// A server with an address.
#[derive(Debug)]
pub(super) struct HttpServer {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<HttpSessionPool>,
    /// The sessions of legacy clients that raincheck uses, too.
    pub(super) client_sessions: Arc<ClientSessions>,
    /// The transport, as configured or as found out. Before it is known, Streamable HTTP is spoken.
    transport: OnceLock<HttpTransport>,
    dialling: Dialling,
}

#[derive(Debug)]
enum HttpTransport {
    Streamable,
    Sse(Arc<LineServer>),
}

/// The parts from which lines over HTTP+SSE are made.
#[derive(Debug)]
struct Dialling {
    url: Uri,
    limits: PoolLimits,
    services: TaskTracker,
}

/// The transport on which requests reach the server.
pub(super) enum ServerTransport<'a> {
    /// Each request is a POST, and is answered there.
    Posts(&'a HttpServer),
    /// Many requests share a line.
    Lines(&'a Arc<LineServer>),
}

impl Server {
    pub(super) fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        let Some(program) = &settings.command else {
            let http_server = HttpServer::new(settings, services)?;
            return Ok(Self::Http(Arc::new(http_server)));
        };
        let launcher = ProcessLauncher {
            program: program.clone(),
            spawner: Arc::new(Spawner::start()?),
            services,
            health: Arc::default(),
            obstacles: Arc::default(),
            bytes_max: settings.message_bytes_max,
            stop: CancellationToken::new(),
        };
        let limits = PoolLimits {
            sessions_max: settings.children_max,
            of_each_caller: settings.children_of_each_caller,
            fill: &CHILDREN,
            wait: settings.session_wait,
            sharing: sharing(settings, Sharing::UntilAsked),
        };
        let lines = LineServer::new(LineSource::Program(launcher), limits);
        Ok(Self::Program(lines))
    }

    pub(super) fn transport(&self) -> ServerTransport<'_> {
        match self {
            Self::Program(lines) => ServerTransport::Lines(lines),
            Self::Http(http_server) => match http_server.transport.get() {
                Some(HttpTransport::Sse(lines)) => ServerTransport::Lines(lines),
                Some(HttpTransport::Streamable) | None => ServerTransport::Posts(http_server),
            },
        }
    }

    /// Begins one request. Nothing is sent until its events are polled.
    pub(super) fn begin(&self, era: Era, request: Arc<UpstreamRequest>) -> Exchange {
        self.begin_at(era, request, SeatPlace::Any)
    }

    /// Begins one request that has its place already.
    pub(super) fn begin_at(
        &self,
        era: Era,
        request: Arc<UpstreamRequest>,
        place: SeatPlace,
    ) -> Exchange {
        let (slot, pooled) = match place {
            SeatPlace::Any => (None, None),
            SeatPlace::Session(slot) => (Some(slot), None),
            SeatPlace::Line(pooled) => (None, Some(pooled)),
        };
        match (self.transport(), era) {
            (ServerTransport::Posts(http_server), Era::Modern) => {
                modern::begin(Arc::clone(&http_server.origin), request)
            }
            (ServerTransport::Posts(http_server), Era::Legacy) => session::begin(
                &http_server.origin,
                Arc::clone(&http_server.sessions),
                request,
                slot,
            ),
            (ServerTransport::Lines(lines), era) => {
                match request.pin.as_ref().and_then(borrowed_line::line) {
                    Some(own) => borrowed_line::begin(own, request),
                    None => line::begin(Arc::clone(lines.pool()), era, request, pooled),
                }
            }
        }
    }

    /// Returns the rule for the client credentials that the server receives. A program receives none.
    pub(super) fn credentials(&self) -> Option<&CredentialRule> {
        match self {
            Self::Http(http_server) => Some(http_server.origin.credentials()),
            Self::Program(_) => None,
        }
    }

    /// Returns `true` if the server can distinguish callers by their credentials.
    pub(super) fn tells_callers_apart(&self) -> bool {
        self.credentials()
            .is_some_and(CredentialRule::tells_callers_apart)
    }

    /// Its lines, where it has some.
    pub(super) fn lines(&self) -> Option<&Arc<LineServer>> {
        match self.transport() {
            ServerTransport::Posts(_) => None,
            ServerTransport::Lines(lines) => Some(lines),
        }
    }
}

impl HttpServer {
    fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        let url: Uri = settings.url.parse().map_err(|_| UrlError::Scheme)?;
        let connector = Connector::new(&url, settings)?;
        let http = Http::new(connector, settings.headers.clone(), services.clone());
        let origin = Origin::new(&url, http, settings).ok_or(UrlError::Scheme)?;
        let origin = Arc::new(origin);
        let limits = |pooled| PoolLimits {
            sessions_max: settings.sessions_max,
            of_each_caller: settings.sessions_of_each_caller,
            fill: &SESSIONS,
            wait: settings.session_wait,
            sharing: sharing(settings, pooled),
        };
        let sessions = HttpSessionPool::new(
            Arc::clone(&origin),
            limits(Sharing::Never),
            services.clone(),
        );
        let client_sessions = ClientSessions::new(Arc::clone(&origin), services.clone());
        let http_server = Self {
            origin,
            sessions,
            client_sessions: Arc::new(client_sessions),
            transport: OnceLock::new(),
            dialling: Dialling {
                url,
                limits: limits(Sharing::AtTheLimit),
                services,
            },
        };
        match (settings.transport, settings.era) {
            (Transport::Sse, _) => {
                let dialer = http_server.dialer().ok_or(UrlError::Scheme)?;
                http_server.speaks_sse(dialer);
            }
            // A configured era means that the server is not probed.
            (Transport::Auto, None) => {}
            (Transport::Auto, Some(_)) | (Transport::StreamableHttp, _) => {
                http_server.speaks_streamable();
            }
        }
        Ok(http_server)
    }

    /// Returns `true` if the transport is known.
    pub(super) fn is_decided(&self) -> bool {
        self.transport.get().is_some()
    }

    /// Notes that the server answered over Streamable HTTP.
    pub(super) fn speaks_streamable(&self) {
        self.decide(|| HttpTransport::Streamable);
    }

    fn speaks_sse(&self, dialer: Dialer) {
        self.decide(|| {
            HttpTransport::Sse(LineServer::new(
                LineSource::Sse(dialer),
                self.dialling.limits,
            ))
        });
    }

    fn decide(&self, known: impl FnOnce() -> HttpTransport) {
        self.transport.get_or_init(known);
    }

    fn dialer(&self) -> Option<Dialer> {
        let Dialling { url, services, .. } = &self.dialling;
        Dialer::new(Arc::clone(&self.origin), url, services.clone())
    }

    /// Finds out the era and the transport (2025-11-25, Transports, Backwards Compatibility): a server that
    /// refuses a POST is asked for the endpoint of HTTP+SSE.
    pub(super) async fn find_era(
        &self,
        credentials: Option<&Credentials>,
    ) -> Result<Era, Undecided> {
        let era = match probe::probe(&self.origin, credentials).await? {
            Found::Era(era) => era,
            // A server that does not answer as a modern one counts as legacy (streamable-http, Backward Compatibility).
            Found::Trouble | Found::Refused => Era::Legacy,
            // A legacy server may fail at a method that it does not know. Only a session that it begins shows that.
            Found::Failing(failure) => {
                let said = legacy_sessions::ask_in_time(&self.origin, credentials).await;
                if said.is_none_or(|said| !said.is_taken()) {
                    // The call itself was not sent.
                    let effect = SideEffect::None;
                    return Err(Undecided::Failed(Failure { effect, ..failure }));
                }
                // A server of both eras may only have been starting.
                match probe::probe(&self.origin, credentials).await {
                    Ok(Found::Era(era)) => era,
                    Ok(_) | Err(_) => Era::Legacy,
                }
            }
            Found::NoPosts if self.is_decided() => Era::Legacy,
            Found::NoPosts | Found::NoMessage => return self.find_old(credentials).await,
        };
        self.speaks_streamable();
        Ok(era)
    }

    async fn find_old(&self, credentials: Option<&Credentials>) -> Result<Era, Undecided> {
        // This key is no caller's, so that the credentials of one caller never serve another.
        let nobody = PoolKey::new(Era::Legacy, Uuid::new_v4().into_bytes(), "{}");
        let refused = match self.sessions.open(&nobody, credentials).await {
            Err(SessionError::Error(error)) if matches!(error.status, 401 | 403) => {
                return Err(Undecided::Unauthorized(error));
            }
            // A session is closed when its lease is dropped.
            Ok(_) | Err(SessionError::Error(_)) => {
                self.speaks_streamable();
                return Ok(Era::Legacy);
            }
            // Only an HTTP refusal can mean that the server speaks the old transport.
            Err(SessionError::Failed(failure)) if failure.reason != Reason::UpstreamHttp => {
                return Err(Undecided::Failed(failure));
            }
            Err(SessionError::Later(later)) => {
                return Err(Undecided::Failed(later.failure));
            }
            Err(SessionError::Failed(refused)) => refused,
        };
        // The server refused both requests, without an answer of MCP. A gateway may answer for a server that is
        // not there yet, so the server is asked again later.
        let Some(dialer) = self.dialer().filter(|_| !self.is_decided()) else {
            return Err(Undecided::Failed(refused));
        };
        match Box::pin(dialer.dial(credentials)).await {
            // This stream only had to name its endpoint. Each line opens a stream of its own.
            Ok(_) => {}
            Err(SessionError::Error(error)) if matches!(error.status, 401 | 403) => {
                return Err(Undecided::Unauthorized(error));
            }
            Err(SessionError::Failed(failure)) if failure == OTHER_ORIGIN => {
                return Err(Undecided::Failed(failure));
            }
            Err(SessionError::Error(_) | SessionError::Failed(_) | SessionError::Later(_)) => {
                return Err(Undecided::Failed(refused));
            }
        }
        tracing::info!("the server speaks HTTP+SSE (2024-11-05)");
        self.speaks_sse(dialer);
        Ok(Era::Legacy)
    }
}

/// Returns the rule for the calls that share a session. It is `pooled` for sessions that hold no state.
fn sharing(settings: &Settings, pooled: Sharing) -> Sharing {
    match settings.session {
        SessionMode::Pool => pooled,
        SessionMode::Caller => Sharing::Always,
    }
}
