//! The GET streams of one client's session, which the client and raincheck's calls share. One stream is open at
//! a time: the first that needs it opens it, and it stays open while either needs it.

use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use async_trait::async_trait;
use hyper::Response;
use hyper::header::ACCEPT_ENCODING;
use hyper::http::request;
use hyper::http::response::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::base::lock::Mutex;
use crate::mcp::error::Failure;
use crate::mcp::headers::LAST_EVENT_ID;
use crate::mcp::sse::SseEvent;
use crate::mcp::version::LEGACY_NEWEST;
use crate::upstream::client_session::stream;
use crate::upstream::client_session::stream::ClientStream;
use crate::upstream::http::cookies::Cookies;
use crate::upstream::http::origin::NO_CODING;
use crate::upstream::http::{RequestBody, ResponseBody};
use crate::upstream::reconnect::is_for_now;
use crate::upstream::sessions::session::{ServerSession, Unasked};

/// The beginning of event ids that raincheck gave.
pub const OUR_EVENT_IDS: &str = "raincheck/";

/// The time for which a call waits for the stream. A server may hold back the head of the response until it has something
/// to say.
const OPENING: Duration = Duration::from_millis(300);

/// Why a client has no stream.
#[derive(Debug)]
pub enum Unheard {
    /// The server's refusal, which the client gets as it is.
    Refused(Box<Response<ResponseBody>>),
    Failed(Failure),
}

#[derive(Debug)]
pub(in crate::upstream) struct SharedStreams {
    /// One stream is opened at a time, so that a client never meets a stream of raincheck's as a conflict.
    opening: Arc<Semaphore>,
    streams: Mutex<KnownStreams>,
}

#[derive(Debug, Default)]
struct KnownStreams {
    /// The stream that no client reads.
    kept: Option<Arc<ClientStream>>,
    /// The streams that clients read.
    read: usize,
    /// `true` if the server has no such stream.
    none: bool,
}

impl SharedStreams {
    pub(in crate::upstream) fn new() -> Arc<Self> {
        Arc::new(Self {
            opening: Arc::new(Semaphore::new(1)),
            streams: Mutex::default(),
        })
    }

    fn streams(&self) -> MutexGuard<'_, KnownStreams> {
        self.streams.lock()
    }

    /// No stream is to be opened for raincheck's calls.
    fn is_settled(&self) -> bool {
        let streams = self.streams();
        let is_kept = streams.kept.as_ref().is_some_and(|kept| !kept.is_over());
        streams.none || streams.read > 0 || is_kept
    }

    /// Opens the stream for a call of raincheck's that is about to be sent. Resolves when the stream is there,
    /// when the server has none, or when it is slow to say so. Cancel safe: the stream stays.
    pub(in crate::upstream) async fn join(self: &Arc<Self>, session: &Arc<ServerSession>) {
        if self.is_settled() {
            return;
        }
        let turn = Arc::clone(&self.opening).acquire_owned();
        let Ok(Ok(turn)) = timeout(OPENING, turn).await else {
            return;
        };
        // Another call may have opened the stream while this one waited for its turn.
        if self.is_settled() {
            return;
        }
        let is_told = self.open(session, turn);
        let _ = timeout(OPENING, is_told).await;
    }

    /// Resolves when the server has said whether it has a stream.
    fn open(
        self: &Arc<Self>,
        session: &Arc<ServerSession>,
        turn: OwnedSemaphorePermit,
    ) -> oneshot::Receiver<()> {
        let (told, is_told) = oneshot::channel();
        let opening = Opening { turn, _told: told };
        // The job holds the session weakly: an open stream alone must not keep the session alive.
        let going_on = open(Arc::clone(self), Arc::downgrade(session), opening);
        session.accompany(going_on);
        is_told
    }

    /// A client's resumed stream may have been the session's own, so another one is opened for the calls that
    /// run.
    fn replace(self: &Arc<Self>, session: &Arc<ServerSession>) {
        // If the turn is taken, a stream is being opened already, and serves these calls as well.
        let turn = Arc::clone(&self.opening).try_acquire_owned();
        if let Ok(turn) = turn
            && !self.is_settled()
            && !session.calls().is_empty()
        {
            drop(self.open(session, turn));
        }
    }

    /// The client's own GET.
    pub(super) async fn hear(
        self: &Arc<Self>,
        session: &Arc<ServerSession>,
        mut parts: request::Parts,
    ) -> Result<ServerStreamReader, Unheard> {
        parts.headers.insert(ACCEPT_ENCODING, NO_CODING);
        let after = parts.headers.get(LAST_EVENT_ID).cloned();
        let mut after = after.and_then(|id| id.to_str().ok().map(str::to_owned));
        if after
            .as_ref()
            .is_some_and(|id| id.starts_with(OUR_EVENT_IDS))
        {
            // The server has no event of this id, so the client gets the stream from here on.
            parts.headers.remove(LAST_EVENT_ID);
            after = None;
        }
        // Never closed.
        let _turn = Arc::clone(&self.opening).acquire_owned().await.ok();
        if let Some(kept) = self.take_kept(after.as_deref()) {
            return Ok(self.read(session, kept, SharedStreamKind::Session));
        }
        // Only the server knows to which stream an event id of its own belongs.
        let of = match after {
            Some(_) => SharedStreamKind::Rest,
            None => SharedStreamKind::Session,
        };
        let origin = session.origin();
        let cookies: &Cookies = session.cookies();
        let response = origin
            .pass(Box::new(parts), RequestBody::empty(), None, Some(cookies))
            .await;
        let response = response.map_err(Unheard::Failed)?;
        session.heard(&response);
        match stream::events_of(response, origin.message_bytes_max) {
            Ok((head, events)) => {
                let opened = ClientStream::new(head, true);
                let news = self.read(session, Arc::clone(&opened), of);
                session.accompany(opened.run(Arc::downgrade(session), events));
                Ok(news)
            }
            // A stream of raincheck's may be the reason for the conflict.
            Err(refused) if refused.status() == hyper::StatusCode::CONFLICT => {
                let kept = self.take_kept(None);
                let kept = kept.ok_or(Unheard::Refused(refused))?;
                Ok(self.read(session, kept, SharedStreamKind::Session))
            }
            Err(refused) => Err(Unheard::Refused(refused)),
        }
    }

    fn take_kept(&self, after: Option<&str>) -> Option<Arc<ClientStream>> {
        let mut streams = self.streams();
        let is_taken = |kept: &mut Arc<ClientStream>| kept.attach(after);
        streams.kept.take_if(is_taken)
    }

    fn read(
        self: &Arc<Self>,
        session: &Arc<ServerSession>,
        stream: Arc<ClientStream>,
        of: SharedStreamKind,
    ) -> ServerStreamReader {
        if of == SharedStreamKind::Session {
            self.streams().read += 1;
        }
        ServerStreamReader {
            head: stream.head.clone(),
            ended: session.ended(),
            session: Arc::clone(session),
            shared: Arc::clone(self),
            stream,
            of,
        }
    }

    /// No client reads it any more.
    fn keep(
        self: &Arc<Self>,
        session: &Arc<ServerSession>,
        stream: &Arc<ClientStream>,
        of: SharedStreamKind,
    ) {
        if of == SharedStreamKind::Rest {
            stream.close();
            self.replace(session);
            return;
        }
        let mut streams = self.streams();
        streams.read = streams.read.saturating_sub(1);
        if stream.is_over() {
            return;
        }
        if streams.kept.as_ref().is_some_and(|kept| !kept.is_over()) {
            // A second stream would take messages away from the kept one, because the server sends each on one stream
            // only.
            drop(streams);
            stream.close();
            return;
        }
        // This comes before another reader can take the stream.
        stream.detach(session);
        streams.kept = Some(Arc::clone(stream));
    }
}

/// The streams of a client's session, as the session knows them.
#[derive(Debug)]
pub(super) struct ClientStreams(pub(super) Arc<SharedStreams>);

impl ClientStreams {
    pub(super) fn new() -> Self {
        Self(SharedStreams::new())
    }
}

#[async_trait]
impl Unasked for ClientStreams {
    fn is_a_clients(&self) -> bool {
        true
    }

    async fn hear(&self, session: &Arc<ServerSession>) {
        // Streams of earlier revisions pass as bytes. A stream of raincheck's would be a conflict for the
        // client.
        if session.version() == LEGACY_NEWEST {
            self.0.join(session).await;
        }
    }
}

/// Which stream a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SharedStreamKind {
    /// The session's stream.
    Session,
    /// The rest of a stream that was cut, mostly of a POST. It belongs to that client.
    Rest,
}

/// Dropped when the server has said whether it has a stream.
struct Opening {
    turn: OwnedSemaphorePermit,
    _told: oneshot::Sender<()>,
}

/// Opens the stream for our calls, and reads it.
async fn open(shared: Arc<SharedStreams>, session: Weak<ServerSession>, opening: Opening) {
    let Some(opened) = stream::get(&session, None).await else {
        return;
    };
    let (head, events) = match opened {
        Ok(opened) => opened,
        Err(status) => {
            let is_busy = is_for_now(status) || status == hyper::StatusCode::CONFLICT;
            // After a refusal for now, the next call asks again. Any other refusal holds for the whole session.
            shared.streams().none = !is_busy;
            return;
        }
    };
    let stream = ClientStream::new(head, false);
    let before = shared.streams().kept.replace(Arc::clone(&stream));
    if let Some(before) = before {
        before.close();
    }
    // The stream is read for as long as it lasts, and must not keep what belongs to the session.
    drop(shared);
    let Opening { turn, _told: told } = opening;
    drop((turn, told));
    stream.run(session, events).await;
}

/// Reads what the server says on a session's stream, except for messages to raincheck. When the reader is
/// dropped, the stream waits for the client's next GET, or is given up if no call of raincheck's runs.
#[derive(Debug)]
pub struct ServerStreamReader {
    /// The head of the server's response.
    pub head: Parts,
    session: Arc<ServerSession>,
    shared: Arc<SharedStreams>,
    stream: Arc<ClientStream>,
    of: SharedStreamKind,
    ended: CancellationToken,
}

impl ServerStreamReader {
    /// The next event as the server wrote it. `None` at the end of the stream. Cancel safe.
    pub async fn next(&mut self) -> Option<SseEvent> {
        tokio::select! {
            // A session that its client has ended yields nothing more, even if events are waiting.
            biased;
            () = self.ended.cancelled() => None,
            event = self.stream.next() => event,
        }
    }
}

impl Drop for ServerStreamReader {
    fn drop(&mut self) {
        self.shared.keep(&self.session, &self.stream, self.of);
    }
}
