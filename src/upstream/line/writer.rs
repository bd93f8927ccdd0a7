//! The writing side of one line: which messages wait, which have begun to be sent, and who listens to what
//! comes back.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::credentials::{Credentials, LatestCredentials};
use crate::upstream::line::health::LineHealth;
use crate::upstream::port::UpstreamError;
use crate::upstream::reader_queue::Full;
use crate::upstream::server_message::ServerMessage;

/// Messages that wait for a server that does not read. A caller with one more waits, too.
const OUTBOUND_MAX: usize = 64;

/// The time that a server that asked a question may take to read the answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Receives the server's messages on a line. The task that reads the line calls these functions, so none of them may
/// wait. Between two messages the task waits for a reader whose queue is full.
pub(in crate::upstream) trait LineListener: Send + Sync + 'static {
    /// One message, and its text.
    fn heard(&self, message: ServerMessage, text: &str);
    /// Returns the wait for the reader whose queue the last message has filled.
    fn full(&self) -> Option<Full>;
    /// The server did not take a message. `None`: no caller waits for the fate of this message.
    fn refused(&self, send_state: Option<&Arc<SendState>>, refusal: WriteError);
    /// The line has ended: nothing more is received or sent.
    fn over(&self, end: LineEnd);
}

/// After this many messages, the task that reads lets other tasks run, because the queues behind it are bounded
/// and a server may write many messages at once.
const AT_ONCE: usize = 8;

/// Lets other tasks run from time to time, for the task that reads a line.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Yielder {
    heard: usize,
}

impl Yielder {
    /// Notes that one more message was received.
    pub(in crate::upstream) async fn heard(&mut self, listener: &impl LineListener) {
        if let Some(full) = listener.full() {
            full.await;
        }
        self.heard += 1;
        if self.heard.is_multiple_of(AT_ONCE) {
            tokio::task::yield_now().await;
        }
    }
}

/// The reason why nothing more will be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum LineEnd {
    /// The process ended, or closed its standard input or output; or the event stream did.
    Gone,
    /// The server wrote a message that is longer than allowed.
    TooLarge,
    /// raincheck ended the line.
    Stopped,
}

/// Why a message was not taken.
#[derive(Debug)]
pub(in crate::upstream) enum WriteError {
    /// The message was lost, and no answer will come.
    Failed(Failure),
    /// The server refused the message with this error.
    Error(UpstreamError),
    /// The server may not know this line any more. The message has no effect, and the line takes no more.
    Lost(Failure),
}

/// A message on its way to the server.
#[derive(Debug)]
pub(in crate::upstream) struct Outbound {
    pub(in crate::upstream) text: String,
    /// For a request: whether it has begun to be sent.
    pub(in crate::upstream) send_state: Option<Arc<SendState>>,
    /// For an answer to a question: receives the failure if the server did not take the answer. Dropped if the server
    /// took it.
    pub(in crate::upstream) refused: Option<oneshot::Sender<Failure>>,
}

/// Records whether a message has begun to be sent. This is decided once: a message that was withdrawn is never sent,
/// and one that has begun may have been read.
#[derive(Debug, Default)]
pub(in crate::upstream) struct SendState {
    verdict: AtomicU8,
    settled: Notify,
}

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl SendState {
    /// Takes the message back. Returns `true` if it will never be sent.
    pub(super) fn withdraw(&self) -> bool {
        let is_unsent = self.decide(WITHDRAWN);
        // A request that has begun is settled, too, so that its POST is not tried again after its cancel.
        self.settle();
        is_unsent
    }

    /// Begins to send the message. Returns `false` if it must not be sent.
    pub(in crate::upstream) fn begin(&self) -> bool {
        self.decide(BEGUN)
    }

    /// Makes the message one that was never sent. For a message that the server has not read and can read no more.
    pub(in crate::upstream) fn take_back(&self) {
        self.verdict.store(WITHDRAWN, Ordering::Release);
    }

    /// The caller does not wait for the answer any more.
    pub(super) fn settle(&self) {
        // `notify_one` keeps the notice for a waiter that comes later.
        self.settled.notify_one();
    }

    /// Resolves when the caller does not wait for the answer any more. For one waiter.
    pub(in crate::upstream) async fn settled(&self) {
        self.settled.notified().await;
    }

    fn decide(&self, verdict: u8) -> bool {
        let decided =
            self.verdict
                .compare_exchange(WAITING, verdict, Ordering::AcqRel, Ordering::Acquire);
        // A second withdrawal finds the first one, and the message is as unsent as before.
        decided.is_ok() || decided == Err(verdict)
    }
}

/// Writes to a line. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct LineWriter {
    outbound: mpsc::Sender<Outbound>,
    stop: CancellationToken,
    /// Cancelled when the server has read the first message, or when that cannot be known.
    read: CancellationToken,
    vitals: Arc<LineVitals>,
    /// Those with which messages are posted. A program gets none.
    credentials: LatestCredentials,
}

impl LineWriter {
    /// The writer, and the queue that the connector reads.
    pub(in crate::upstream) fn new(
        stop: CancellationToken,
        health: Arc<Mutex<LineHealth>>,
        credentials: LatestCredentials,
    ) -> (Self, mpsc::Receiver<Outbound>) {
        let (outbound, receiver) = mpsc::channel(OUTBOUND_MAX);
        let vitals = Arc::new(LineVitals {
            health,
            has_answered: AtomicBool::new(false),
            wrote: Mutex::default(),
        });
        let writer = Self {
            outbound,
            stop,
            read: CancellationToken::new(),
            vitals,
            credentials,
        };
        (writer, receiver)
    }

    /// Sends a message. Waits while the server does not read. If the line has ended, its listener is notified.
    pub(super) async fn say(&self, message: Outbound) {
        let _ = self.outbound.send(message).await;
    }

    /// Sends the answer to a question. Fails if the server does not read or refuses the answer. A server that is slow
    /// to refuse counts as one that took the answer.
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

    /// Room for one message, which is then sent without waiting. Waits while the server does not read. `None`
    /// if the line has ended.
    pub(super) async fn room(&self) -> Option<mpsc::Permit<'_, Outbound>> {
        self.outbound.reserve().await.ok()
    }

    /// Sends a message, and drops it if the server does not read.
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

    /// Sends these credentials from now on: those of the caller's newest request, for example a renewed token.
    pub(super) fn renew(&self, credentials: Option<&Credentials>) {
        self.credentials.renew(credentials);
    }

    /// Ends the line. A child's standard input is closed, and the child is killed if it does not end; an event
    /// stream is closed.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Notes that the server has read its first message, or that this cannot be known.
    pub(in crate::upstream) fn reads(&self) {
        self.read.cancel();
    }

    /// Resolves when the server has read its first message, or when that cannot be known.
    pub(super) async fn was_read(&self) {
        self.read.cancelled().await;
    }

    /// Cancelled when the line shall end.
    pub(in crate::upstream) fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// Notes what the server wrote in place of its first message.
    pub(in crate::upstream) fn wrote(&self, quoted: &str) {
        self.vitals
            .wrote
            .lock()
            .get_or_insert_with(|| quoted.into());
    }

    /// Returns the text that the server wrote in place of its first message.
    pub(super) fn written(&self) -> Option<Box<str>> {
        self.vitals.wrote.lock().clone()
    }

    /// Notes that the server has answered a call, and so works.
    pub(super) fn answered(&self) {
        // All lines share one health, so only the first answer of a line takes its lock.
        if !self.vitals.has_answered.swap(true, Ordering::Relaxed) {
            self.vitals.health().answered();
        }
    }

    /// Returns `true` once the server has answered a call.
    pub(in crate::upstream) fn has_answered(&self) -> bool {
        self.vitals.has_answered.load(Ordering::Relaxed)
    }

    /// The line ended by itself.
    pub(in crate::upstream) fn ended(&self, born: Instant) {
        let now = Instant::now();
        let has_answered = self.has_answered();
        let lived = now.saturating_duration_since(born);
        self.vitals.health().died(lived, has_answered, now);
    }
}

/// The facts that one line reports about the health of the server.
#[derive(Debug)]
struct LineVitals {
    health: Arc<Mutex<LineHealth>>,
    has_answered: AtomicBool,
    /// The text that the server wrote in place of its first message, in a form that may be logged.
    wrote: Mutex<Option<Box<str>>>,
}

impl LineVitals {
    fn health(&self) -> MutexGuard<'_, LineHealth> {
        self.health.lock()
    }
}
