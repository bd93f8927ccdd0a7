//! How the wrapped server is reached: as configured, or as it turns out when it is first asked.

use std::sync::{Arc, OnceLock};

use hyper::Uri;
use hyper::header::HeaderValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::channel::{Channels, Limits, Sharing, Source};
use super::client_session::registry::ClientSessions;
use super::connect::{Connector, UrlError};
use super::exchange::{borrowed_line, line, modern, session};
use super::failures::LATER;
use super::http::Http;
use super::no_session::NoSession;
use super::origin::Origin;
use super::port::{Exchange, Outgoing};
use super::probe::{self, Found, Undecided};
use super::sessions::{Key, Sessions};
use super::settings::{SessionMode, Settings, Transport};
use super::sse::Dialer;
use super::stdio::child::Nursery;
use super::stdio::spawner::Spawner;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::version::Era;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub(super) enum Server {
    Web(Arc<Web>),
    Program(Arc<Channels>),
}

/// A server with an address.
#[derive(Debug)]
pub(super) struct Web {
    pub(super) origin: Arc<Origin>,
    pub(super) sessions: Arc<Sessions>,
    /// Those of legacy clients that raincheck uses, too.
    pub(super) client_sessions: Arc<ClientSessions>,
    /// As configured, or as found out. Until then Streamable HTTP is spoken.
    transport: OnceLock<Known>,
    dialling: Dialling,
}

#[derive(Debug)]
enum Known {
    Streamable,
    Sse(Arc<Channels>),
}

/// What lines over HTTP+SSE are made from.
#[derive(Debug)]
struct Dialling {
    url: Uri,
    limits: Limits,
    services: TaskTracker,
}

/// In which way requests reach the server.
pub(super) enum Way<'a> {
    /// A POST for each, answered there.
    Posts(&'a Web),
    /// A line for many.
    Lines(&'a Arc<Channels>),
}

impl Server {
    pub(super) fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        let Some(program) = &settings.command else {
            let web = Web::new(settings, services)?;
            return Ok(Self::Web(Arc::new(web)));
        };
        let nursery = Nursery {
            program: program.clone(),
            spawner: Arc::new(Spawner::start()?),
            services,
            health: Arc::default(),
            obstacles: Arc::default(),
            bytes_max: settings.message_bytes_max,
            stop: CancellationToken::new(),
        };
        let limits = Limits {
            lines_max: settings.children_max,
            wait: settings.session_wait,
            sharing: match settings.session {
                SessionMode::Pool => Sharing::UntilAsked,
                SessionMode::Caller => Sharing::Always,
            },
        };
        let channels = Channels::new(Source::Program(nursery), limits);
        Ok(Self::Program(channels))
    }

    pub(super) fn way(&self) -> Way<'_> {
        match self {
            Self::Program(channels) => Way::Lines(channels),
            Self::Web(web) => match web.transport.get() {
                Some(Known::Sse(channels)) => Way::Lines(channels),
                Some(Known::Streamable) | None => Way::Posts(web),
            },
        }
    }

    /// Begins one request. Nothing is sent until its events are polled.
    pub(super) fn begin(&self, era: Era, outgoing: Outgoing) -> Exchange {
        match (self.way(), era) {
            (Way::Posts(web), Era::Modern) => modern::begin(Arc::clone(&web.origin), outgoing),
            (Way::Posts(web), Era::Legacy) => {
                session::begin(&web.origin, Arc::clone(&web.sessions), outgoing)
            }
            (Way::Lines(lines), era) => match outgoing.pin.as_ref().and_then(borrowed_line::line) {
                Some(own) => borrowed_line::begin(own, outgoing),
                None => line::begin(Arc::clone(lines.pool()), era, outgoing),
            },
        }
    }

    /// Whether a client's credentials go there.
    pub(super) fn takes_credentials(&self) -> bool {
        match self {
            Self::Web(web) => web.origin.http.takes_credentials(),
            Self::Program(_) => false,
        }
    }

    /// Its lines, where it has some.
    pub(super) fn lines(&self) -> Option<&Arc<Channels>> {
        match self.way() {
            Way::Posts(_) => None,
            Way::Lines(channels) => Some(channels),
        }
    }
}

impl Web {
    fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        let url: Uri = settings.url.parse().map_err(|_| UrlError::Scheme)?;
        let connector = Connector::new(&url, settings)?;
        let http = Http::new(connector, settings.headers.clone(), services.clone());
        let origin = Origin::new(&url, http, settings).ok_or(UrlError::Scheme)?;
        let origin = Arc::new(origin);
        let sessions = Sessions::new(
            Arc::clone(&origin),
            settings.session,
            settings.sessions_max,
            settings.session_wait,
            services.clone(),
        );
        let client_sessions = ClientSessions::new(Arc::clone(&origin), services.clone());
        let limits = Limits {
            lines_max: settings.sessions_max,
            wait: settings.session_wait,
            sharing: match settings.session {
                SessionMode::Pool => Sharing::AtTheLimit,
                SessionMode::Caller => Sharing::Always,
            },
        };
        let web = Self {
            origin,
            sessions,
            client_sessions: Arc::new(client_sessions),
            transport: OnceLock::new(),
            dialling: Dialling {
                url,
                limits,
                services,
            },
        };
        match (settings.transport, settings.era) {
            (Transport::Sse, _) => {
                let dialer = web.dialer().ok_or(UrlError::Scheme)?;
                web.speaks_sse(dialer);
            }
            // Who says the era wants no probe.
            (Transport::Auto, None) => {}
            (Transport::Auto, Some(_)) | (Transport::StreamableHttp, _) => web.speaks_streamable(),
        }
        Ok(web)
    }

    /// Whether it is decided how the server is spoken to.
    pub(super) fn is_decided(&self) -> bool {
        self.transport.get().is_some()
    }

    /// It answered over Streamable HTTP.
    pub(super) fn speaks_streamable(&self) {
        self.decide(|| Known::Streamable);
    }

    fn speaks_sse(&self, dialer: Dialer) {
        self.decide(|| Known::Sse(Channels::new(Source::Sse(dialer), self.dialling.limits)));
    }

    fn decide(&self, known: impl FnOnce() -> Known) {
        self.transport.get_or_init(known);
    }

    fn dialer(&self) -> Option<Dialer> {
        let Dialling { url, services, .. } = &self.dialling;
        Dialer::new(Arc::clone(&self.origin), url, services.clone())
    }

    /// Asks for the era, and on the way finds out the transport (2025-11-25, Transports, Backwards
    /// Compatibility): a server that refuses a POST is asked for the endpoint of the old one.
    pub(super) async fn find_era(
        &self,
        credentials: Option<&HeaderValue>,
    ) -> Result<Era, Undecided> {
        let era = match probe::probe(&self.origin, credentials).await? {
            Found::Era(era) => era,
            Found::Trouble => Era::Legacy,
            Found::NoPosts if self.is_decided() => Era::Legacy,
            Found::NoPosts => return self.find_old(credentials).await,
        };
        self.speaks_streamable();
        Ok(era)
    }

    async fn find_old(&self, credentials: Option<&HeaderValue>) -> Result<Era, Undecided> {
        // A key that is no caller's: the credentials of one must not serve another.
        let nobody = Key {
            caller: Uuid::new_v4().into_bytes(),
            capabilities: "{}".into(),
        };
        match self.sessions.open(&nobody, credentials).await {
            Err(NoSession::Error(error)) if matches!(error.status, 401 | 403) => {
                return Err(Undecided::Unauthorized(error));
            }
            // Dropped, a session is closed.
            Ok(_) | Err(NoSession::Error(_)) => {
                self.speaks_streamable();
                return Ok(Era::Legacy);
            }
            Err(NoSession::Failed(failure)) if failure.reason != Reason::UpstreamHttp => {
                return Err(Undecided::Failed(failure));
            }
            Err(NoSession::Later(_)) => {
                return Err(Undecided::Failed(LATER));
            }
            Err(NoSession::Failed(_)) => {}
        }
        // Refused both times, with no word of MCP: a gateway may answer for a server that is not
        // there yet, so that it is asked again later.
        let unknown = Failure::new(Reason::UpstreamHttp, SideEffect::None);
        let dialer = self.dialer().ok_or(Undecided::Failed(unknown))?;
        match Box::pin(dialer.dial(credentials)).await {
            Ok(_) => {}
            Err(NoSession::Error(error)) if matches!(error.status, 401 | 403) => {
                return Err(Undecided::Unauthorized(error));
            }
            Err(NoSession::Error(_) | NoSession::Failed(_) | NoSession::Later(_)) => {
                return Err(Undecided::Failed(unknown));
            }
        }
        tracing::info!("the upstream speaks HTTP+SSE (2024-11-05)");
        self.speaks_sse(dialer);
        Ok(Era::Legacy)
    }
}
