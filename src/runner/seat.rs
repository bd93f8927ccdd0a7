//! The client's place at a call: where answers go, and the one cell that decides whether the
//! client heard of its task or went away before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::failpoint::{Point, hit};
use crate::mcp::error::{Failure, SideEffect};
use crate::mcp::input::QUESTIONS_MAX;
use crate::upstream::{self, UpstreamError};

/// Notifications that wait for a slow client; beyond it the wrapped server waits too.
const REPLIES_MAX: usize = 8;

/// What goes to the client that called.
#[derive(Debug)]
pub enum Reply {
    /// Before the answer, as JSON: a JSON-RPC notification; or a request of a legacy server to a
    /// legacy client, which is answered by [`Client::answers`].
    Relay(String),
    /// The answer. Nothing follows.
    Answer(Answer),
}

/// How a call was answered.
#[derive(Debug)]
pub enum Answer {
    /// A result as the client may see it.
    Result(Box<RawValue>),
    Error(UpstreamError),
    Failed(Failure),
    /// The store did not answer in time. Whether the call may have run.
    StoreUnavailable(SideEffect),
}

/// The client's answer to a question that was relayed to it.
#[derive(Debug)]
pub struct Answered {
    /// The server's JSON-RPC id, as JSON.
    pub id: Arc<str>,
    pub answer: upstream::Answer,
}

/// Decided once: announced or gone, whichever comes first.
#[derive(Debug, Default)]
struct Cell {
    state: AtomicU8,
    /// What is said from now on are events on a stream.
    streams: AtomicBool,
    gone: Notify,
}

const ANNOUNCING: u8 = 0;
const ANNOUNCED: u8 = 1;
const GONE: u8 = 2;

/// A new seat: the carrier's side and the handler's side.
pub(super) fn seat() -> (Seat, Client) {
    let cell = Arc::new(Cell::default());
    let (replies, receiver) = mpsc::channel(REPLIES_MAX);
    let (answers, answered) = mpsc::channel(QUESTIONS_MAX);
    (
        Seat {
            replies,
            answered: Some(answered),
            cell: Arc::clone(&cell),
        },
        Client {
            receiver,
            answers,
            cell: Guard(cell),
        },
    )
}

/// The carrier's side.
#[derive(Debug)]
pub(super) struct Seat {
    replies: mpsc::Sender<Reply>,
    answered: Option<mpsc::Receiver<Answered>>,
    cell: Arc<Cell>,
}

impl Seat {
    /// What the client answers to relayed questions, for whoever asks first.
    pub(super) fn take_answered(&mut self) -> Option<mpsc::Receiver<Answered>> {
        self.answered.take()
    }

    /// Resolves when the client went away before it was told the answer. Never, once it was.
    ///
    /// Cancel safe.
    pub(super) async fn gone(&self) {
        loop {
            match self.cell.state.load(Ordering::Acquire) {
                GONE => return,
                ANNOUNCED => std::future::pending().await,
                _ => self.cell.gone.notified().await,
            }
        }
    }

    /// Whether the client was told, as far as is known now.
    pub(super) fn was_told(&self) -> bool {
        self.cell.state.load(Ordering::Acquire) == ANNOUNCED
    }

    /// Resolves when it is decided: true if the client was told.
    pub(super) async fn settled(&self) -> bool {
        loop {
            match self.cell.state.load(Ordering::Acquire) {
                GONE => return false,
                ANNOUNCED => return true,
                _ => self.cell.gone.notified().await,
            }
        }
    }

    /// Whether the answer will be an event on a stream, as far as is known now.
    pub(super) fn streams(&self) -> bool {
        self.cell.streams.load(Ordering::Relaxed)
    }

    /// Waits while the client is slow, at most until `deadline`.
    pub(super) async fn send(&self, reply: Reply, deadline: Instant) {
        if matches!(reply, Reply::Relay(_)) {
            self.cell.streams.store(true, Ordering::Relaxed);
        }
        // A client that went away is noticed by the cell, not here.
        let _ = tokio::time::timeout_at(deadline, self.replies.send(reply)).await;
    }
}

/// The handler's side; dropping it before the answer was written means the client is gone.
#[derive(Debug)]
pub struct Client {
    receiver: mpsc::Receiver<Reply>,
    answers: mpsc::Sender<Answered>,
    cell: Guard,
}

impl Client {
    /// Cancel safe. `None`: the call ended without an answer, which only a panic can cause.
    pub async fn next(&mut self) -> Option<Reply> {
        self.receiver.recv().await
    }

    /// Where answers to relayed questions go. One for which nobody waits any more is lost.
    pub fn answers(&self) -> mpsc::Sender<Answered> {
        self.answers.clone()
    }

    /// The head of the response went out: the answer will be an event.
    pub fn begin_stream(&self) {
        self.cell.0.streams.store(true, Ordering::Relaxed);
    }

    /// The guard alone, for a response body to hold until it was polled to its end.
    pub fn into_guard(self) -> Guard {
        self.cell
    }
}

/// Dropped while the answer was not written yet, it reports the client as gone.
#[derive(Debug)]
pub struct Guard(Arc<Cell>);

impl Guard {
    /// The answer was handed to the connection.
    pub fn announce(&self) {
        self.decide(ANNOUNCED);
        hit(Point::Answered);
    }

    fn decide(&self, state: u8) {
        let cell = &self.0;
        let first =
            cell.state
                .compare_exchange(ANNOUNCING, state, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            cell.gone.notify_one();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.decide(GONE);
    }
}
