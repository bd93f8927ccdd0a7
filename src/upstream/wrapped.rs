//! The wrapped server as the rest of raincheck sees it, whatever era it speaks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use hyper::header::{AUTHORIZATION, HeaderValue, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Request, Response, Uri};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use tokio_util::task::TaskTracker;

use super::connect::Connector;
pub use super::connect::UrlError;
use super::http::{Http, RequestBody, ResponseBody};
use super::listen::{self, Wish};
pub use super::listen::{ListenEvent, Listening};
use super::origin::Origin;
use super::probe::{self, Undecided};
use super::sessions::{Key, NoSession, Sessions};
pub use super::settings::{SessionMode, Settings};
use super::stdio::session::Session;
use super::stdio::{self, Stdio};
use super::{Answer, Event, Exchange, Outgoing, UpstreamError, hop, legacy, modern, translate};
use crate::mcp::error::{Failure, Reason, RpcError, SideEffect};
use crate::mcp::json::{Object, quote};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;

/// Pages of a tool list that are read; a server with more is not checked further.
const PAGES_MAX: usize = 64;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The wrapped server.
#[derive(Debug)]
pub struct Upstream {
    server: Server,
    era: Arc<OnceCell<Era>>,
    discovered: Mutex<Option<Arc<Discovered>>>,
}

/// How it is reached.
#[derive(Debug)]
enum Server {
    Http {
        origin: Arc<Origin>,
        sessions: Arc<Sessions>,
    },
    Stdio(Arc<Stdio>),
}

/// What the server says of itself, in its own words.
#[derive(Debug, Clone)]
pub struct Discovered {
    pub capabilities: Box<RawValue>,
    pub server_info: Option<Box<RawValue>>,
    pub instructions: Option<Box<RawValue>>,
    /// A modern server's list.
    pub supported_versions: Option<Box<RawValue>>,
}

/// Why the server could not be asked about itself.
#[derive(Debug)]
pub enum DiscoverError {
    Failed(Failure),
    /// An answer with status 401 or 403: the client's business.
    Unauthorized(UpstreamError),
}

impl From<Undecided> for DiscoverError {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::Failed(failure) => Self::Failed(failure),
            Undecided::Unauthorized(error) => Self::Unauthorized(error),
        }
    }
}

impl Upstream {
    /// Connections and their like run on `services` for as long as they are used.
    pub fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        let era = settings
            .era
            .map_or_else(OnceCell::new, |era| OnceCell::new_with(Some(era)));
        Ok(Self {
            server: Server::new(settings, services)?,
            era: Arc::new(era),
            discovered: Mutex::default(),
        })
    }

    /// Loopback: the client's credentials may go there.
    pub fn forwards_credentials(&self) -> bool {
        match &self.server {
            Server::Http { origin, .. } => origin.http.is_local(),
            Server::Stdio(_) => false,
        }
    }

    /// Whether requests can be passed on as bytes.
    pub fn speaks_http(&self) -> bool {
        matches!(self.server, Server::Http { .. })
    }

    /// The server's program died quickly five times in a row, and no process has answered since.
    pub fn cannot_run(&self) -> bool {
        match &self.server {
            Server::Http { .. } => false,
            Server::Stdio(stdio) => stdio.cannot_run(),
        }
    }

    /// A session for one legacy client of a program, with a process of its own; its id. Bounded as
    /// processes are.
    pub async fn open_session(
        &self,
        caller: [u8; 16],
    ) -> Result<(Box<str>, Arc<Session>), Failure> {
        match &self.server {
            Server::Http { .. } => Err(INVALID),
            Server::Stdio(stdio) => stdio.open_session(caller).await,
        }
    }

    /// That session, for the caller that began it.
    pub fn session(&self, id: &str, caller: [u8; 16]) -> Option<Arc<Session>> {
        match &self.server {
            Server::Http { .. } => None,
            Server::Stdio(stdio) => stdio.session(id, caller),
        }
    }

    /// How long a call's patience waits for [`Event::Sent`] before it counts.
    pub fn start_allowance(&self) -> Duration {
        match &self.server {
            Server::Http { .. } => Duration::ZERO,
            Server::Stdio(_) => stdio::START_ALLOWANCE,
        }
    }

    /// How long [`Self::stop`] may take.
    pub fn stop_patience(&self) -> Duration {
        match &self.server {
            Server::Http { .. } => Duration::ZERO,
            Server::Stdio(_) => stdio::STOP_PATIENCE,
        }
    }

    /// Ends what runs on its behalf, within a few seconds: the server's processes.
    pub async fn stop(&self) {
        if let Server::Stdio(stdio) = &self.server {
            stdio.stop().await;
        }
    }

    /// The era, asked by one of all who want to know and remembered.
    pub async fn era(&self, credentials: Option<HeaderValue>) -> Result<Era, DiscoverError> {
        let origin = match &self.server {
            Server::Http { origin, .. } => origin,
            Server::Stdio(stdio) => {
                let era = stdio.era(&self.era).await;
                return era.map_err(DiscoverError::Failed);
            }
        };
        let probed = self.era.get_or_try_init(|| async {
            let era = Box::pin(probe::probe(origin, credentials.as_ref())).await?;
            tracing::info!(?era, "the upstream's era is known");
            Ok::<_, Undecided>(era)
        });
        Ok(*probed.await?)
    }

    /// Whether the server can be reached at all. Anonymous: a refusal is an answer, too.
    pub async fn answers(&self) -> bool {
        // A configured era says nothing of whether anybody is there.
        let asked = match (self.known_era(), &self.server) {
            (None, _) => self.era(None).await,
            (Some(_), Server::Http { origin, .. }) => {
                probe::probe(origin, None).await.map_err(Into::into)
            }
            (Some(_), Server::Stdio(stdio)) => stdio.probe().await.map_err(DiscoverError::Failed),
        };
        match asked {
            Ok(_) | Err(DiscoverError::Unauthorized(_)) => true,
            Err(DiscoverError::Failed(failure)) => failure.reason == Reason::UpstreamHttp,
        }
    }

    pub fn known_era(&self) -> Option<Era> {
        self.era.get().copied()
    }

    /// Begins one request. Nothing is sent until its events are polled.
    pub fn begin(&self, era: Era, outgoing: Outgoing) -> Exchange {
        match (&self.server, era) {
            (Server::Http { origin, .. }, Era::Modern) => {
                modern::begin(Arc::clone(origin), outgoing)
            }
            (Server::Http { origin, sessions }, Era::Legacy) => {
                legacy::begin(origin, Arc::clone(sessions), outgoing)
            }
            (Server::Stdio(stdio), era) => stdio.begin(era, outgoing),
        }
    }

    /// Carries on a call that another process sent to a server that still runs it. `None`: the
    /// resume point is not of this program, or the server was a process of a process that is gone.
    pub fn adopt(&self, caller: [u8; 16], resume_point: &str) -> Option<Exchange> {
        match &self.server {
            Server::Http { origin, sessions } => {
                legacy::adopt(origin, sessions, caller, resume_point)
            }
            Server::Stdio(_) => None,
        }
    }

    /// Passes a client's request on, bytes as they come, and the answer back. To a program there is
    /// no such way, see [`Self::speaks_http`].
    pub async fn pass(
        &self,
        mut parts: Parts,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, Failure> {
        let Server::Http { origin, .. } = &self.server else {
            return Err(Failure::new(Reason::UpstreamUnreachable, SideEffect::None));
        };
        hop::strip(&mut parts.headers);
        parts.headers.remove(ORIGIN);
        if !self.forwards_credentials() {
            parts.headers.remove(AUTHORIZATION);
        }
        let well_known = parts
            .uri
            .path()
            .starts_with(WELL_KNOWN)
            .then_some(WELL_KNOWN);
        origin.readdress(&mut parts, well_known);
        let request = Request::from_parts(parts, body);
        let mut response = origin.http.send(request).await?;
        hop::strip(response.headers_mut());
        Ok(response)
    }

    /// What the server says of itself to this caller, who has these capabilities.
    pub async fn discover(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, DiscoverError> {
        let discovered = match self.era(credentials.clone()).await? {
            Era::Modern => Arc::new(self.discover_modern(caller, credentials).await?),
            Era::Legacy => {
                self.discover_legacy(caller, credentials, capabilities)
                    .await?
            }
        };
        *self
            .discovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&discovered));
        Ok(discovered)
    }

    /// What the server last said of itself, to anybody.
    pub fn last_discovered(&self) -> Option<Arc<Discovered>> {
        self.discovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn discover_modern(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
    ) -> Result<Discovered, DiscoverError> {
        let params = translate::own_params("{}", &[]);
        let outgoing = own(caller, credentials, "server/discover", params, "{}".into());
        let result = self.ask(Era::Modern, outgoing).await?;
        let object = Object::parse(result.get()).unwrap_or_default();
        let member = |key| object.get(key).map(ToOwned::to_owned);
        let meta = object.get_object("_meta").unwrap_or_default();
        Ok(Discovered {
            capabilities: member("capabilities").ok_or(DiscoverError::Failed(INVALID))?,
            server_info: meta
                .get("io.modelcontextprotocol/serverInfo")
                .map(ToOwned::to_owned),
            instructions: member("instructions"),
            supported_versions: member("supportedVersions"),
        })
    }

    async fn discover_legacy(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
        capabilities: &str,
    ) -> Result<Arc<Discovered>, DiscoverError> {
        let sessions = match &self.server {
            Server::Http { sessions, .. } => sessions,
            Server::Stdio(stdio) => {
                let described = stdio.described(caller, capabilities).await;
                return described.map_err(no_session);
            }
        };
        let key = Key {
            caller,
            capabilities: "{}".into(),
        };
        let lease = sessions.check_out(&key, credentials.as_ref()).await;
        let lease = lease.map_err(no_session)?;
        let session = &lease.session;
        let discovered = Discovered {
            capabilities: session.capabilities.clone(),
            server_info: session.server_info.clone(),
            instructions: session.instructions.clone(),
            supported_versions: None,
        };
        lease.give_back();
        Ok(Arc::new(discovered))
    }

    /// The caller's tools, listed at most once a minute and anew after a change.
    pub async fn tools(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
        capabilities: Arc<str>,
    ) -> Result<Arc<Tools>, DiscoverError> {
        let known = match &self.server {
            Server::Http { origin, .. } => &origin.tools,
            Server::Stdio(stdio) => stdio.tools(),
        };
        known
            .get(caller, self.list_tools(caller, credentials, capabilities))
            .await
    }

    async fn list_tools(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
        capabilities: Arc<str>,
    ) -> Result<Tools, DiscoverError> {
        let era = self.era(credentials.clone()).await?;
        let declared = translate::without_tasks(&capabilities).unwrap_or_else(|_| "{}".to_owned());
        let mut tools = Tools::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let quoted = cursor.as_deref().map(quote);
            let page: &[(&str, &str)] = match &quoted {
                Some(cursor) => &[("cursor", cursor)],
                None => &[],
            };
            let params = translate::own_params(&declared, page);
            let outgoing = own(
                caller,
                credentials.clone(),
                "tools/list",
                params,
                Arc::clone(&capabilities),
            );
            let result = self.ask(era, outgoing).await?;
            cursor = tools
                .add_page(&result)
                .map_err(|_| DiscoverError::Failed(INVALID))?;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// One request of raincheck's own, of which only the answer is of interest.
    async fn ask(&self, era: Era, outgoing: Outgoing) -> Result<Box<RawValue>, DiscoverError> {
        let mut exchange = self.begin(era, outgoing);
        while let Some(event) = exchange.events.next().await {
            match event {
                Event::Result(result) => return Ok(result),
                Event::Error(error) => return Err(refused(error)),
                Event::Failed(failure) => return Err(DiscoverError::Failed(failure)),
                // There is no client to ask, and a server may wait for the answer for ever.
                Event::Question(question) => {
                    let refusal = RpcError::method_not_found().to_json();
                    let answer = Answer::Refused(refusal.into());
                    let _ = exchange.control.answer(&question.id, answer).await;
                }
                Event::Sent | Event::Progress(_) | Event::Log(_) | Event::Resumable => {}
            }
        }
        Err(DiscoverError::Failed(INVALID))
    }

    /// Listens to the server's changes; the era must be known, else it ends at once.
    pub fn listen(
        &self,
        caller: [u8; 16],
        credentials: Option<HeaderValue>,
        capabilities: Arc<str>,
        filter: Arc<str>,
    ) -> Listening {
        let wish = Wish {
            caller,
            credentials,
            capabilities,
            filter,
        };
        match &self.server {
            Server::Http { origin, sessions } => {
                let (origin, sessions) = (Arc::clone(origin), Arc::clone(sessions));
                listen::listen(origin, sessions, self.known_era(), wish)
            }
            Server::Stdio(stdio) => stdio.listen(self.known_era(), wish),
        }
    }
}

impl Server {
    fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        if let Some(program) = &settings.command {
            let stdio = Stdio::new(settings, program, services)?;
            return Ok(Self::Stdio(stdio));
        }
        let url: Uri = settings.url.parse().map_err(|_| UrlError::Scheme)?;
        let connector = Connector::new(&url, settings.connect_timeout)?;
        let http = Http::new(connector, services.clone());
        let origin = Origin::new(&url, http, settings.message_bytes_max).ok_or(UrlError::Scheme)?;
        let origin = Arc::new(origin);
        let sessions = Sessions::new(
            Arc::clone(&origin),
            settings.session,
            settings.sessions_max,
            settings.session_wait,
            services,
        );
        Ok(Self::Http { origin, sessions })
    }
}

fn no_session(why: NoSession) -> DiscoverError {
    match why {
        NoSession::Failed(failure) => DiscoverError::Failed(failure),
        NoSession::Error(error) => refused(error),
    }
}

const INVALID: Failure = Failure {
    reason: Reason::UpstreamInvalid,
    effect: SideEffect::None,
};

fn refused(error: UpstreamError) -> DiscoverError {
    if matches!(error.status, 401 | 403) {
        return DiscoverError::Unauthorized(error);
    }
    DiscoverError::Failed(INVALID)
}

fn own(
    caller: [u8; 16],
    credentials: Option<HeaderValue>,
    method: &str,
    params: String,
    capabilities: Arc<str>,
) -> Outgoing {
    Outgoing {
        caller,
        credentials,
        method: method.into(),
        params: params.into(),
        capabilities,
        name: None,
        param_headers: [].into(),
        wants_progress: false,
        log_level: None,
        retry: None,
    }
}
