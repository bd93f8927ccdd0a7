//! The wrapped server as the other parts of raincheck see it, whatever era it speaks.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Response};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::base::backoff::Backoff;
use crate::jobs::shared::SharedJobCalls;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::version::{Era, MODERN};
use crate::telemetry::operation_series::Side;
use crate::telemetry::operations::Operation;
use crate::upstream::bench_hooks::measured;
use crate::upstream::client_session::cookies::OfCaller;
use crate::upstream::credentials::Credentials;
pub use crate::upstream::discovery::discovered::{DiscoverError, Discovered};
use crate::upstream::discovery::facts::{ServerFacts, is_refusal};
use crate::upstream::discovery::probe;
use crate::upstream::discovery::probe::Undecided;
use crate::upstream::exchange::remote_task::BeginRequest;
use crate::upstream::exchange::remote_task::job::AdoptedJob;
use crate::upstream::exchange::{remote_task, session as session_exchange};
use crate::upstream::failures::INVALID_WORDS;
use crate::upstream::forward::ClientHeaders;
pub use crate::upstream::http::connect::UrlError;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::line::session::LineSession;
pub use crate::upstream::line::sessions::LineChoice;
use crate::upstream::listen;
use crate::upstream::listen::ListenRequest;
pub use crate::upstream::listen::{ListenEvent, Listening};
use crate::upstream::obstacle::Obstacle;
use crate::upstream::port::{Exchange, Forwarded, UpstreamRequest};
use crate::upstream::seat::Seat;
use crate::upstream::server::{Server, ServerTransport};
use crate::upstream::sessions::pinned;
pub use crate::upstream::settings::{SessionMode, Settings, Transport};
use crate::upstream::translate;

/// Timeout for callers that can continue without knowing the era.
const SOON: Duration = Duration::from_secs(2);

/// The pauses between attempts to find out the era of a server that is not there yet.
const DECIDE_PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// The maximum number of requests for a description that may go on after their callers have left.
const BESIDE_MAX: usize = 16;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The wrapped server.
#[derive(Debug, Clone)]
pub struct Upstream {
    pub(super) server: Server,
    pub(super) known: Arc<ServerFacts>,
    pub(super) beside: Arc<Semaphore>,
    adopted_jobs: Arc<SharedJobCalls>,
}

impl Upstream {
    /// Connections and other jobs run on `services` for as long as they are used.
    pub fn new(settings: &Settings, services: TaskTracker) -> Result<Self, UrlError> {
        // HTTP+SSE was only ever spoken in the legacy era.
        let old = (settings.transport == Transport::Sse).then_some(Era::Legacy);
        let server = Server::new(settings, services.clone())?;
        let known = ServerFacts::new(server.clone(), services, settings.era.or(old), settings);
        let beside = Arc::new(Semaphore::new(BESIDE_MAX));
        Ok(Self {
            server,
            known,
            beside,
            adopted_jobs: Arc::default(),
        })
    }

    /// Asks a server with an address for its era, until the server answers or wants credentials.
    async fn decide(&self) {
        let mut pauses = DECIDE_PAUSES;
        while let Err(DiscoverError::Failed(_)) = self.era(None).await {
            tokio::time::sleep(pauses.spread_pause()).await;
        }
    }

    pub(super) fn transport(&self) -> ServerTransport<'_> {
        self.server.transport()
    }

    /// Returns `true` if the server receives its clients' own credentials.
    pub fn forwards_credentials(&self) -> bool {
        self.server.credentials().is_some_and(|rule| rule.forwards)
    }

    /// Returns the header in which raincheck names the caller to the server.
    pub fn caller_header(&self) -> Option<&HeaderName> {
        self.server.credentials()?.caller_header.as_ref()
    }

    /// Returns the credentials in a client's request that the server receives.
    pub fn credentials(&self, headers: &HeaderMap) -> Option<Credentials> {
        self.server.credentials()?.of(headers)
    }

    /// The client's headers that go to the server with a request that is carried, beside its credentials.
    pub fn client_headers(&self, headers: &HeaderMap) -> ClientHeaders {
        match &self.server {
            Server::Http(http_server) => http_server.origin.carried(headers),
            Server::Program(_) => [].into(),
        }
    }

    /// The parameters of a client's query that go to the server, as a query.
    pub fn forwarded_query(&self, query: Option<&str>) -> Option<Arc<str>> {
        match &self.server {
            Server::Http(http_server) => http_server.origin.forwarded_query(query),
            Server::Program(_) => None,
        }
    }

    /// Returns `true` if a request came from this process, so that raincheck is, in some way, its own server.
    pub fn has_sent(&self, headers: &HeaderMap) -> bool {
        match &self.server {
            Server::Http(http_server) => http_server.origin.http.has_sent(headers),
            Server::Program(_) => false,
        }
    }

    /// Returns `true` if requests can be passed on as bytes. This may change until the transport is known, see
    /// [`Self::is_decided`].
    pub fn speaks_http(&self) -> bool {
        self.server.lines().is_none()
    }

    /// Returns `true` if the server has an address.
    pub fn has_address(&self) -> bool {
        matches!(self.server, Server::Http(_))
    }

    /// Returns `true` if the transport is known. If not, [`Self::era`] finds it out.
    pub fn is_decided(&self) -> bool {
        match &self.server {
            Server::Http(http_server) => http_server.is_decided(),
            Server::Program(_) => true,
        }
    }

    /// Notes that a legacy client was answered over Streamable HTTP.
    pub fn answered_over_http(&self) {
        if let Server::Http(http_server) = &self.server {
            http_server.speaks_streamable();
        }
    }

    /// Returns `true` if the program cannot be run: it died quickly five times in a row, and no process has answered
    /// since.
    pub fn cannot_run(&self) -> bool {
        self.server.lines().is_some_and(|lines| lines.cannot_run())
    }

    /// Opens a session for one legacy client of a server over lines, with a line of its own, and returns it
    /// with its id. The limit of lines counts it.
    pub async fn open_session(
        &self,
        caller: [u8; 16],
        credentials: Option<&Credentials>,
        line: LineChoice,
    ) -> Result<(Box<str>, Arc<LineSession>), DiscoverError> {
        let lines = self
            .server
            .lines()
            .ok_or(DiscoverError::Failed(INVALID_WORDS))?;
        let opened = lines.open_session(caller, credentials, line).await;
        opened.map_err(DiscoverError::from)
    }

    /// Starts a program before a client needs it, because `npx` may have to fetch it first. If the era is not
    /// configured, the server is asked for it.
    pub async fn start_early(&self, is_asked: bool) {
        let Some(lines) = self.server.lines() else {
            if is_asked {
                self.decide().await;
            }
            return;
        };
        if is_asked && self.known_era().is_none() {
            // After a failure the first request of a client asks again.
            let _ = self.era(None).await;
        } else {
            lines.start_early();
        }
    }

    /// The session with that id, if that caller opened it.
    pub fn session(&self, id: &str, caller: [u8; 16]) -> Option<Arc<LineSession>> {
        self.server.lines()?.session(id, caller)
    }

    /// Returns the time to wait for [`Sent`](super::Event::Sent) before the grace window of a call begins.
    pub fn start_allowance(&self) -> Duration {
        match &self.server {
            Server::Http(_) => Duration::ZERO,
            Server::Program(_) => super::stdio::START_ALLOWANCE,
        }
    }

    /// Returns the time that [`Self::stop`] may take.
    pub fn stop_patience(&self) -> Duration {
        let lines = self.server.lines();
        // Sessions of an HTTP server are ended within what is left of the grace period.
        lines.map(|lines| lines.stop_patience()).unwrap_or_default()
    }

    /// Ends what belongs to the server, within a few seconds: its processes, or the sessions there that are not
    /// used.
    pub async fn stop(&self) {
        match self.server.transport() {
            ServerTransport::Posts(http_server) => http_server.sessions.stop().await,
            ServerTransport::Lines(lines) => lines.stop().await,
        }
    }

    /// The era. One of all callers that ask at the same time asks the server, and the answer is remembered.
    pub async fn era(&self, credentials: Option<Credentials>) -> Result<Era, DiscoverError> {
        self.known.find_era(credentials.as_ref()).await
    }

    /// Notes what a client declares that needs the era: its call uses the process that is asked.
    pub fn expect(&self, capabilities: &str) {
        if let Some(lines) = self.server.lines() {
            let declared = || translate::legacy_capabilities(capabilities).into();
            lines.pool().expect(declared);
        }
    }

    /// The era, if it is known within the time that a client waits for a first byte. The request to the server
    /// goes on.
    pub async fn era_soon(&self, credentials: Option<Credentials>) -> Option<Era> {
        let asking = timeout(SOON, self.era(credentials)).await;
        asking.ok()?.ok()
    }

    /// Asks the server for its era again, because it refused something that a server of the known era would
    /// not. Takes a few seconds at most, and asks only if the last time is long enough ago.
    pub async fn doubt_era(&self, credentials: Option<Credentials>) {
        self.known.doubt(credentials).await;
    }

    /// Returns `true` if the server is there now. Cheap enough to be called again and again: a program is not started
    /// for it, and no event stream is opened. The request has no credentials, and a refusal counts as an answer.
    pub async fn is_up(&self) -> bool {
        match (&self.server, self.server.transport()) {
            (Server::Program(_), _) => !self.cannot_run(),
            (Server::Http(http_server), ServerTransport::Lines(_)) => {
                http_server.origin.http.can_connect().await
            }
            (Server::Http(_), ServerTransport::Posts(http_server)) => {
                match probe::probe(&http_server.origin, None).await {
                    Ok(_) | Err(Undecided::Unauthorized(_)) => true,
                    Err(Undecided::Failed(failure)) => failure.reason == Reason::UpstreamHttp,
                }
            }
        }
    }

    /// Returns the obstacle that last kept raincheck from reaching the server.
    pub fn obstacle(&self) -> Option<Obstacle> {
        match &self.server {
            Server::Http(http_server) => http_server.origin.http.obstacles.last(),
            Server::Program(lines) => lines.obstacle(),
        }
    }

    /// The address to which the server redirected, if another path than the configured one.
    pub fn learned_address(&self) -> Option<String> {
        match &self.server {
            Server::Http(http_server) => http_server.origin.learned_address(),
            Server::Program(_) => None,
        }
    }

    pub fn known_era(&self) -> Option<Era> {
        self.known.era()
    }

    /// Begins one request. Nothing is sent until its events are polled.
    pub fn begin(&self, era: Era, outgoing: impl Into<Arc<UpstreamRequest>>) -> Exchange {
        self.begin_at(Seat::anywhere(era), outgoing.into())
    }

    /// Begins one request that has its place already.
    pub fn begin_at(&self, seat: Seat, outgoing: Arc<UpstreamRequest>) -> Exchange {
        let era = seat.era();
        let operation = self.operation(era, &outgoing);
        let job = outgoing.job.clone();
        let asked = Arc::clone(&outgoing);
        let watched = |exchange| self.known.watched(exchange, era, &asked);
        // A task of the server's own takes several requests, and only the first has the seat of the call.
        let begin = |one| self.server.begin_at(era, one, seat.place);
        let exchange = if let Some(job) = job {
            // Only the start is watched, because a job may run for hours after it.
            let start = |one| watched(begin(one));
            remote_task::job::begin(self.beginning(era), start, outgoing, job, era)
        } else if outgoing.native_task && era == Era::Legacy {
            watched(remote_task::legacy::begin(
                self.beginning(era),
                begin,
                outgoing,
            ))
        } else {
            watched(begin(outgoing))
        };
        measured(exchange, operation)
    }

    /// Begins requests about a task of the server's own.
    fn beginning(&self, era: Era) -> BeginRequest {
        let server = self.server.clone();
        Arc::new(move |one| server.begin(era, one))
    }

    /// Begins the measurement of a request. Returns `None` if no measurement is read.
    fn operation(&self, era: Era, outgoing: &UpstreamRequest) -> Option<Operation> {
        // A legacy server's revision is a matter of its sessions.
        let version = match era {
            Era::Modern => MODERN,
            Era::Legacy => "",
        };
        let transport = match &self.server {
            Server::Http(_) => "tcp",
            Server::Program(_) => "pipe",
        };
        let name = outgoing.name.as_deref();
        Operation::begin(Side::Client, &outgoing.method, name, version, transport)
    }

    /// Follows a modern server's own task, which came as the answer to that call. `None`: the answer is no
    /// task.
    pub fn follow(&self, call: &Arc<UpstreamRequest>, answer: &RawValue) -> Option<Exchange> {
        // A program ends with this process, and a line has its tasks to itself.
        let is_shared = matches!(self.server.transport(), ServerTransport::Posts(_));
        remote_task::modern::follow(self.beginning(Era::Modern), call, (answer, is_shared))
    }

    /// Carries on a call that another process sent to a server that still runs it. `from`: what the server gets of a request of
    /// the client, if the client's credentials are needed. `None`: this program did not write the resume point, or the process
    /// that the call ran in has gone.
    pub fn adopt(&self, caller: [u8; 16], resume_point: &str, from: Forwarded) -> Option<Exchange> {
        let call = UpstreamRequest::adopted(caller, "{}".into()).forwarding(from);
        if let Some(job) = AdoptedJob::of(resume_point, &self.adopted_jobs) {
            let begin = self.beginning(job.era());
            return Some(job.follow(begin, call));
        }
        if let Some(task) = remote_task::modern::AdoptedTask::of(resume_point) {
            return Some(task.follow(self.beginning(Era::Modern), call));
        }
        let ServerTransport::Posts(http_server) = self.server.transport() else {
            return None;
        };
        let (sessions, of_clients) = (&http_server.sessions, &http_server.client_sessions);
        if let Some(task) = remote_task::legacy::AdoptedTask::of(resume_point) {
            let (session, capabilities) = task.session();
            let call = call.declaring(Arc::clone(capabilities));
            let adopted = session_exchange::adopted_session(sessions, of_clients, &call, session);
            let pin = pinned::to_adopted(adopted?.0);
            return Some(task.follow(self.beginning(Era::Legacy), call.on(Some(pin))));
        }
        session_exchange::adopt(sessions, of_clients, call, resume_point)
    }

    /// Passes a client's request and the answer on as bytes. Not for programs, see [`Self::speaks_http`].
    pub async fn pass(
        &self,
        parts: Box<Parts>,
        body: RequestBody,
    ) -> Result<Response<ResponseBody>, Failure> {
        let Server::Http(http_server) = &self.server else {
            return Err(Failure::new(Reason::UpstreamUnreachable, SideEffect::None));
        };
        let well_known = parts
            .uri
            .path()
            .starts_with(WELL_KNOWN)
            .then_some(WELL_KNOWN);
        let is_message = parts.method == Method::POST;
        let credentials = http_server.origin.credentials().of(&parts.headers);
        let kept = &http_server.client_sessions.cookies;
        let cookies = kept.for_request(&parts);
        let caller = parts.extensions.get::<OfCaller>().copied();
        let session = caller.and_then(|_| parts.headers.get(SESSION_ID).cloned());
        let origin = &http_server.origin;
        // A future with a name would be kept twice.
        let passed = origin
            .pass(parts, body, well_known, cookies.as_deref())
            .await;
        if let Ok(response) = &passed {
            let head = response.headers();
            if let Some(cookies) = kept.for_response(caller, session.as_ref(), head) {
                cookies.take_in(head, || origin.url());
            }
        }
        if let Ok(response) = &passed
            && is_message
            && !response.status().is_success()
        {
            self.known.suspicion.notify_one();
            // The client gets its refusal at once: the question about the era runs in a job of its own.
            if is_refusal(response.status()) {
                self.known.doubt_beside(credentials);
            }
        }
        passed
    }

    /// Subscribes to changes of the server. If the era is not known, the stream ends at once.
    pub fn listen(
        &self,
        caller: [u8; 16],
        credentials: Option<Credentials>,
        capabilities: Arc<str>,
        filter: Arc<str>,
    ) -> Listening {
        let wish = ListenRequest {
            caller,
            credentials,
            capabilities,
            filter,
        };
        match self.server.transport() {
            ServerTransport::Posts(http_server) => {
                let (origin, sessions) = (
                    Arc::clone(&http_server.origin),
                    Arc::clone(&http_server.sessions),
                );
                listen::listen(origin, sessions, self.known_era(), wish)
            }
            ServerTransport::Lines(lines) => lines.listen(self.known_era(), wish),
        }
    }
}
