//! What is known of the server. It is asked once, and again when it refuses what a server of its era should
//! understand: servers are upgraded, and taken back, behind the same address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::Either;
use hyper::StatusCode;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, code};
use crate::mcp::result;
use crate::mcp::version::Era;
use crate::upstream::credentials::Credentials;
use crate::upstream::discovery::discovered::{DiscoverError, Discovered};
use crate::upstream::discovery::facts_file::{FactsFile, KeptFacts};
use crate::upstream::discovery::legacy_sessions;
use crate::upstream::discovery::legacy_sessions::LegacySessions;
use crate::upstream::discovery::probe;
use crate::upstream::discovery::probe::Found;
use crate::upstream::discovery::remembered::{NOBODY, Remembered};
use crate::upstream::failures::UNREACHABLE;
use crate::upstream::http::origin::FIRST_WORDS;
use crate::upstream::port::{Event, Exchange, UpstreamRequest};
use crate::upstream::server::{Server, ServerTransport};
use crate::upstream::settings::Settings;
use crate::upstream::single_flight::{Flight, SingleFlight};

/// The time between two such questions. Clients make mistakes that look as if the server had another era.
const PAUSE: Duration = Duration::from_secs(10);

/// The time for which a refusal waits for the server's answer about its era, so that a client that tries again is
/// understood. The request to the server goes on.
const PATIENCE: Duration = Duration::from_secs(5);

/// The era of the server, once it is known. Every request reads it, so it needs no lock.
#[derive(Debug, Default)]
struct KnownEra(AtomicU8);

impl KnownEra {
    fn new(era: Option<Era>) -> Self {
        let known = Self::default();
        if let Some(era) = era {
            known.set(era);
        }
        known
    }

    fn get(&self) -> Option<Era> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(Era::Legacy),
            2 => Some(Era::Modern),
            _ => None,
        }
    }

    fn set(&self, era: Era) {
        let number = match era {
            Era::Legacy => 1,
            Era::Modern => 2,
        };
        self.0.store(number, Ordering::Release);
    }
}

#[derive(Debug)]
pub(in crate::upstream) struct ServerFacts {
    pub(in crate::upstream) server: Server,
    pub(in crate::upstream) services: TaskTracker,
    /// The era is configured, and never asked for.
    is_configured: bool,
    era: KnownEra,
    asking: SingleFlight,
    /// Why the era could not be found out last, if the reason concerns all callers.
    failed: Mutex<Option<Failure>>,
    remembered: Mutex<Remembered>,
    /// The caller for whom the file is kept: all callers without credentials.
    everybody: [u8; 16],
    memory: Option<Arc<FactsFile>>,
    /// The era was read from the file of an earlier run, and the server has answered nothing since.
    is_hearsay: AtomicBool,
    /// `true` if a modern server takes legacy sessions, too.
    pub(in crate::upstream) sessions: LegacySessions,
    doubting: SingleFlight,
    doubted: Mutex<Option<Instant>>,
    /// Notified when the server gave an answer that no MCP server gives.
    pub(in crate::upstream) suspicion: Notify,
    /// For lines: how many had been started when the server was last asked.
    starts_asked: AtomicUsize,
}

impl ServerFacts {
    pub(in crate::upstream) fn new(
        server: Server,
        services: TaskTracker,
        configured: Option<Era>,
        settings: &Settings,
    ) -> Arc<Self> {
        let everybody = if server.tells_callers_apart() {
            settings.anonymous
        } else {
            NOBODY
        };
        let (memory, kept) = settings.known_file.clone().map(FactsFile::open).unzip();
        let kept: KeptFacts = kept.unwrap_or_default();
        let mut remembered = Remembered::default();
        if let Some(words) = &kept.words {
            remembered.note(everybody, words);
        }
        // A modern program can be asked again at no cost. A server with an address must be asked, because the
        // transport is found out with the era. A legacy program may end when it is asked.
        let is_to_know = configured.is_none() && matches!(server, Server::Program(_));
        let hearsay = kept.era.filter(|era| is_to_know && *era == Era::Legacy);
        Arc::new(Self {
            server,
            services,
            is_configured: configured.is_some(),
            era: KnownEra::new(configured.or(hearsay)),
            asking: SingleFlight::default(),
            failed: Mutex::default(),
            remembered: Mutex::new(remembered),
            everybody,
            memory: memory.map(Arc::new),
            is_hearsay: AtomicBool::new(hearsay.is_some()),
            sessions: LegacySessions::default(),
            doubting: SingleFlight::default(),
            doubted: Mutex::default(),
            suspicion: Notify::new(),
            // The first line belongs to the program that was asked a moment before.
            starts_asked: AtomicUsize::new(usize::from(hearsay.is_none())),
        })
    }

    pub(in crate::upstream) fn era(&self) -> Option<Era> {
        self.era.get()
    }

    /// The server's latest description of itself, as it was given to this caller.
    pub(in crate::upstream) fn discovered(&self, whose: [u8; 16]) -> Option<Arc<Discovered>> {
        self.remembered.lock().of(&whose)
    }

    /// A request was begun for a server of that era, which may have changed since.
    pub(in crate::upstream) fn note_discovered(
        &self,
        asked: Era,
        whose: [u8; 16],
        discovered: &Arc<Discovered>,
    ) {
        if self.era().is_some() {
            self.note_said(asked, whose, discovered);
        }
    }

    /// Notes what the server said of itself while its era may not be known: it may speak the other era, too.
    pub(in crate::upstream) fn note_said(
        &self,
        asked: Era,
        whose: [u8; 16],
        discovered: &Arc<Discovered>,
    ) {
        let era = self.era();
        // The era may have been corrected while the request ran, and this answer belongs to the server before.
        if era.is_some_and(|era| era != asked) {
            return;
        }
        self.is_hearsay.store(false, Ordering::Relaxed);
        self.remembered.lock().note(whose, discovered);
        if whose == self.everybody {
            self.keep();
        }
    }

    pub(in crate::upstream) fn is_hearsay(&self) -> bool {
        self.is_hearsay.load(Ordering::Relaxed)
    }

    /// Writes the file for the next run. Nobody waits for the write.
    fn keep(&self) {
        let Some(memory) = self.memory.clone() else {
            return;
        };
        let kept = KeptFacts {
            // A configured era is no finding, and the next run may be configured in another way.
            era: self.era().filter(|_| !self.is_configured),
            words: self.discovered(self.everybody),
        };
        self.services.spawn_blocking(move || memory.keep(&kept));
    }

    /// The era. One of all callers that ask at the same time asks the server, and the answer is remembered. If
    /// the future is dropped, the request goes on.
    pub(in crate::upstream) async fn find_era(
        self: &Arc<Self>,
        credentials: Option<&Credentials>,
    ) -> Result<Era, DiscoverError> {
        loop {
            if let Some(era) = self.era() {
                return Ok(era);
            }
            let Some(turn) = self.asking.take().await else {
                let failed = self.failed.lock().clone();
                match failed {
                    Some(failure) if self.era().is_none() => {
                        return Err(DiscoverError::Failed(failure));
                    }
                    // The other caller's failure may have been about its credentials only, so this caller asks for
                    // itself.
                    _ => continue,
                }
            };
            let (known, credentials) = (Arc::clone(self), credentials.cloned());
            let asking = self.services.spawn(async move {
                let found = known.ask_for_era(credentials.as_ref()).await;
                // The turn ends with the question, because the caller that began it may leave earlier.
                drop(turn);
                found
            });
            return asking
                .await
                .unwrap_or(Err(DiscoverError::Failed(UNREACHABLE)));
        }
    }

    async fn ask_for_era(&self, credentials: Option<&Credentials>) -> Result<Era, DiscoverError> {
        // The caller that asked before may have had other credentials.
        if let Some(era) = self.era() {
            return Ok(era);
        }
        let found = match &self.server {
            Server::Http(http_server) => Box::pin(http_server.find_era(credentials))
                .await
                .map_err(Into::into),
            Server::Program(lines) => lines.probe().await.map_err(DiscoverError::from),
        };
        *self.failed.lock() = match &found {
            // The refusal may be a gateway's, about the credentials.
            Err(DiscoverError::Failed(failure)) if failure.reason != Reason::UpstreamHttp => {
                Some(failure.clone())
            }
            Ok(_) | Err(_) => None,
        };
        if let Ok(era) = found {
            self.era.set(era);
            tracing::info!(?era, "the server's era is known");
            self.keep();
        }
        found
    }

    /// Asks the server for its era again, because it refused something as a server of the other era would,
    /// unless it was asked a moment ago. Running requests go on. If the future is dropped, the question to the
    /// server goes on.
    pub(in crate::upstream) async fn doubt(self: &Arc<Self>, credentials: Option<Credentials>) {
        let Some(era) = self.era().filter(|_| !self.is_configured) else {
            return;
        };
        let asking = async {
            if let Some(turn) = self.doubting.take().await
                && self.may_ask()
            {
                let _ = self.ask_in_doubt(turn, era, credentials).await;
            }
        };
        let _ = timeout(PATIENCE, asking).await;
    }

    /// Asks again in a job that nobody waits for.
    pub(in crate::upstream) fn doubt_beside(self: &Arc<Self>, credentials: Option<Credentials>) {
        let era = self.era().filter(|_| !self.is_configured);
        if let Some(era) = era
            && self.may_ask()
            && let Some(turn) = self.doubting.try_take()
        {
            drop(self.ask_in_doubt(turn, era, credentials));
        }
    }

    fn ask_in_doubt(
        self: &Arc<Self>,
        turn: Flight,
        era: Era,
        credentials: Option<Credentials>,
    ) -> JoinHandle<()> {
        let known = Arc::clone(self);
        self.services.spawn(async move {
            if let Some(lines) = known.server.lines() {
                // Stored before the question: a process that is started meanwhile may be another program.
                known.starts_asked.store(lines.starts(), Ordering::Relaxed);
            }
            let asking = Box::pin(known.ask_anew(era, credentials.as_ref()));
            let found = asking.await;
            // The pause counts from the end of the question, which may take seconds itself.
            *known.doubted.lock() = Some(Instant::now());
            known.is_hearsay.store(false, Ordering::Relaxed);
            if let Some(found) = found {
                known.correct(era, found);
            }
            drop(turn);
        })
    }

    fn may_ask(&self) -> bool {
        let doubted = *self.doubted.lock();
        doubted.is_none_or(|at| Instant::now().saturating_duration_since(at) >= PAUSE)
    }

    /// The era that the server itself claims. `None`: its answer, such as the 404 of a gateway, is no proof
    /// that the known era is wrong.
    async fn ask_anew(&self, known: Era, credentials: Option<&Credentials>) -> Option<Era> {
        let http_server = match self.server.transport() {
            ServerTransport::Posts(http_server) => http_server,
            ServerTransport::Lines(lines) => {
                let found = lines.probe_anew().await.ok()?;
                // A failing modern server answers as a legacy one does, so only a session that it begins proves the
                // change.
                if (known, found) != (Era::Modern, Era::Legacy) {
                    return Some(found);
                }
                let said = lines.takes_sessions().await;
                return said?.is_taken().then_some(Era::Legacy);
            }
        };
        let asking = async {
            match probe::probe(&http_server.origin, credentials).await {
                Ok(Found::Era(Era::Modern)) => Some(Era::Modern),
                Ok(Found::Trouble | Found::Failing(_)) => None,
                Ok(_) if known == Era::Modern => {
                    let said = legacy_sessions::ask_in_time(&http_server.origin, credentials).await;
                    said?.is_taken().then_some(Era::Legacy)
                }
                Ok(_) | Err(_) => None,
            }
        };
        // The request that was refused waits for this answer.
        timeout(FIRST_WORDS, asking).await.ok()?
    }

    fn correct(&self, before: Era, found: Era) {
        if self.era() != Some(before) || found == before {
            return;
        }
        self.era.set(found);
        // All that is remembered comes from the server before.
        *self.remembered.lock() = Remembered::default();
        self.sessions.forget();
        match self.server.transport() {
            ServerTransport::Posts(http_server) => http_server.origin.tools.clear(),
            ServerTransport::Lines(lines) => {
                lines.end_early();
                lines.tools().clear();
            }
        }
        tracing::warn!(era = ?found, "the server speaks another era of MCP now");
        self.keep();
    }

    /// Returns `true` if the server may have become another one since. A program stays the same until it is started
    /// again, and asking it would cost a process.
    fn may_be_another(&self) -> bool {
        let asked = self.starts_asked.load(Ordering::Relaxed);
        let lines = self.server.lines();
        lines.is_none_or(|lines| lines.starts() > asked)
    }

    /// Asks for the era again where the exchange is refused as by a server of another era.
    pub(in crate::upstream) fn watched(
        self: &Arc<Self>,
        exchange: Exchange,
        era: Era,
        asked: &UpstreamRequest,
    ) -> Exchange {
        let is_of_tools = asked.method.starts_with("tools/");
        let (known, credentials) = (Arc::clone(self), asked.credentials.clone());
        let events = exchange.events.then(move |event| {
            let is_hearsay = known.is_hearsay();
            if matches!(event, Event::Result(_)) && is_hearsay {
                known.is_hearsay.store(false, Ordering::Relaxed);
            }
            if matches!(&event, Event::Failed(failure) if failure.reason.is_no_mcp()) {
                known.suspicion.notify_one();
            }
            let is_doubtful = !known.is_configured
                && known.era() == Some(era)
                && (is_hearsay && matches!(event, Event::Error(_) | Event::Failed(_))
                    || is_doubtful(&event, || is_of_tools && known.may_be_another()));
            if !is_doubtful {
                return Either::Left(std::future::ready(event));
            }
            let (known, credentials) = (Arc::clone(&known), credentials.clone());
            // Boxed, because every exchange has room for this future.
            Either::Right(Box::pin(async move {
                known.doubt(credentials).await;
                event
            }))
        });
        Exchange {
            events: events.boxed(),
            control: exchange.control,
        }
    }
}

/// Returns `true` if a server of the other era might have refused this. That a method is unknown counts only for a method
/// that the server should have: every server refuses some methods.
fn is_doubtful(event: &Event, is_method_known: impl FnOnce() -> bool) -> bool {
    match event {
        Event::Error(error) => match result::error_code(&error.error) {
            Some(code::METHOD_NOT_FOUND) => is_method_known(),
            Some(code::INVALID_REQUEST | code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION) => true,
            _ => StatusCode::from_u16(error.status).is_ok_and(is_refusal),
        },
        // Some servers use a status after which a call may have run: 422.
        Event::Failed(failure) => failure.reason == Reason::UpstreamHttp,
        Event::Sent
        | Event::Progress(_)
        | Event::Log(_)
        | Event::Question(_)
        | Event::Job(_)
        | Event::Resumable(_)
        | Event::CredentialsRefused
        | Event::Later(_)
        | Event::Result(_) => false,
    }
}

/// Returns `true` if an HTTP status says that the server does not understand the request.
pub(in crate::upstream) fn is_refusal(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}
