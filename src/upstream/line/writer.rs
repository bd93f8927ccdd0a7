//! The way to one line of the server: what is on its way, what of it has begun to be sent, and who
//! hears what comes back.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::line::health::LineHealth;
use crate::upstream::port::UpstreamError;
use crate::upstream::server_message::ServerMessage;

/// Messages that wait for a server that does not read; a caller with more waits as well.
const OUTBOUND_MAX: usize = 64;

/// A server that asks is expected to read the answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Hears what the server says on a line. Called by the task that reads: none of it may wait.
pub(in crate::upstream) trait LineListener: Send + Sync + 'static {
    /// One message, and its text.
    fn heard(&self, message: ServerMessage, text: &str);
    /// A message was not taken. `None`: it was none whose fate matters.
    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: NotTaken);
    /// Nothing more will be heard, and nothing more is sent.
    fn over(&self, end: LineEnd);
}

/// Messages that are heard before those to whom they go have a turn. What waits for one of them is
/// bounded, and a server may write many at once.
const AT_ONCE: usize = 8;

/// For the task that reads: lets others have theirs.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Yielder {
    heard: usize,
}

impl Yielder {
    /// One message more was heard.
    pub(in crate::upstream) async fn heard(&mut self) {
        self.heard += 1;
        if self.heard.is_multiple_of(AT_ONCE) {
            tokio::task::yield_now().await;
        }
    }
}

/// Why nothing more will be heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LineEnd {
    /// The process ended, or closed its standard input or output; or the event stream did.
    Gone,
    /// The server wrote a message that is longer than allowed.
    TooLarge,
    /// It was asked to end.
    Stopped,
}

/// Why a message was not taken.
#[derive(Debug)]
pub(in crate::upstream) enum NotTaken {
    /// There will be no answer to it.
    Failed(Failure),
    /// The server's own words.
    Error(UpstreamError),
    /// It may be that the server does not know this line any more: the message has no effect, and
    /// the line takes no more.
    Lost(Failure),
}

/// A message on its way to the server.
#[derive(Debug)]
pub(in crate::upstream) struct Outbound {
    pub(in crate::upstream) text: String,
    /// For a request whose fate matters.
    pub(in crate::upstream) send_state: Option<Arc<SendState>>,
    /// For an answer: told if the server does not take it, and dropped else.
    pub(in crate::upstream) refused: Option<oneshot::Sender<Failure>>,
}

/// Whether a message has begun to be sent. Decided once: what was withdrawn will never be sent,
/// and what was begun may have been read.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SendState {
    verdict: AtomicU8,
    settled: Notify,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl SendState {
    /// True if the message will never be sent.
    pub(super) fn withdraw(&self) -> bool {
        let is_unsent = self.decide(WITHDRAWN);
        self.settle();
        is_unsent
    }

    /// False if the message must not be sent.
    pub(in crate::upstream) fn begin(&self) -> bool {
        self.decide(BEGUN)
    }

    /// The caller waits for the answer no longer.
    pub(super) fn settle(&self) {
        self.settled.notify_one();
    }

    /// Resolves when the caller waits for the answer no longer. For one waiter.
    pub(in crate::upstream) async fn settled(&self) {
        self.settled.notified().await;
    }

    fn decide(&self, verdict: u8) -> bool {
        let decided =
            self.verdict
                .compare_exchange(WAITING, verdict, Ordering::AcqRel, Ordering::Acquire);
        decided.is_ok() || decided == Err(verdict)
    }
}

/// The way to a line. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct LineWriter {
    outbound: mpsc::Sender<Outbound>,
    stop: CancellationToken,
    /// Cancelled when the server has read the first of it, or it cannot be known.
    read: CancellationToken,
    vitals: Arc<LineVitals>,
}

impl LineWriter {
    /// The writer, and the queue that the connector reads.
    pub(in crate::upstream) fn new(
        stop: CancellationToken,
        health: Arc<Mutex<LineHealth>>,
    ) -> (Self, mpsc::Receiver<Outbound>) {
        let (outbound, receiver) = mpsc::channel(OUTBOUND_MAX);
        let vitals = Arc::new(LineVitals {
            health,
            has_answered: AtomicBool::new(false),
        });
        let writer = Self {
            outbound,
            stop,
            read: CancellationToken::new(),
            vitals,
        };
        (writer, receiver)
    }

    /// Waits while the server does not read. Where the line has ended, its listener is told.
    pub(super) async fn say(&self, message: Outbound) {
        let _ = self.outbound.send(message).await;
    }

    /// Tells the answer to a question. Fails where the server does not read, or refuses it; one
    /// that is slow to say so has it.
    pub(super) async fn answer(&self, text: String) -> Result<(), Failure> {
        let (refused, was_refused) = oneshot::channel();
        let message = Outbound {
            text,
            send_state: None,
            refused: Some(refused),
        };
        let said = timeout(ANSWER_PATIENCE, self.say(message)).await;
        said.map_err(|_| Failure::new(Reason::UpstreamReset, SideEffect::Unknown))?;
        let refused = timeout(ANSWER_PATIENCE, was_refused).await;
        refused.ok().and_then(Result::ok).map_or(Ok(()), Err)
    }

    /// Waits while the server does not read. With room, a message is sent without waiting; `None` where
    /// the line has ended.
    pub(super) async fn room(&self) -> Option<mpsc::Permit<'_, Outbound>> {
        self.outbound.reserve().await.ok()
    }

    /// Drops a message without an answer where the server does not read.
    pub(super) fn try_say(&self, text: String) {
        let message = Outbound {
            text,
            send_state: None,
            refused: None,
        };
        if self.outbound.try_send(message).is_err() {
            debug!("a message to a server that does not read was dropped");
        }
    }

    /// Closes a child's standard input, and ends it if that does not; or closes the stream.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// The server has read its first message, or it cannot be known.
    pub(in crate::upstream) fn reads(&self) {
        self.read.cancel();
    }

    /// Resolves then. For one who waits for the server's own words.
    pub(super) async fn was_read(&self) {
        self.read.cancelled().await;
    }

    /// Cancelled when the line shall end.
    pub(in crate::upstream) fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// The server answered a call: it works.
    pub(super) fn answered(&self) {
        if !self.vitals.has_answered.swap(true, Ordering::Relaxed) {
            self.vitals.health().answered();
        }
    }

    /// The line ended by itself.
    pub(in crate::upstream) fn ended(&self, born: Instant) {
        let now = Instant::now();
        let has_answered = self.vitals.has_answered.load(Ordering::Relaxed);
        let lived = now.saturating_duration_since(born);
        self.vitals.health().died(lived, has_answered, now);
    }
}

/// What one line adds to what is known of the server.
#[derive(Debug)]
struct LineVitals {
    health: Arc<Mutex<LineHealth>>,
    has_answered: AtomicBool,
}

impl LineVitals {
    fn health(&self) -> MutexGuard<'_, LineHealth> {
        self.health.lock()
    }
}
