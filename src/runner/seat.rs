//! The client's place at a call: where answers go, and the one cell that decides whether the
//! client heard of its task or went away before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::failpoint::{Point, hit};
use crate::lock::Mutex;
use crate::mcp::error::{Failure, SideEffect};
use crate::mcp::input::QUESTIONS_MAX;
use crate::upstream::{self, UpstreamError};

/// Notifications that wait for a slow client.
const REPLIES_MAX: usize = 8;

/// How long the wrapped server waits with a client that does not read. Then the client misses
/// notifications until it reads again: its call must not stand still, and must become a task in
/// time.
const SLOW_CLIENT: Duration = Duration::from_secs(5);

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
    // Questions and the answer have places that no notification takes.
    let (replies, receiver) = mpsc::channel(REPLIES_MAX + QUESTIONS_MAX + 1);
    let (answers, answered) = mpsc::channel(QUESTIONS_MAX);
    (
        Seat {
            answer: Mutex::new(replies.clone().try_reserve_owned().ok()),
            is_slow: AtomicBool::new(false),
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
    /// The place of the answer, until it is there.
    answer: Mutex<Option<mpsc::OwnedPermit<Reply>>>,
    /// The client missed the last notification.
    is_slow: AtomicBool,
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

    /// The answer. Never waits; of several the first counts.
    pub(super) fn answer(&self, answer: Answer) {
        let place = self.answer.lock().take();
        // A client that went away is noticed by the cell, not here.
        if let Some(place) = place {
            place.send(Reply::Answer(answer));
        }
    }

    /// A request of the server's. There is room for all that may be open at once; beyond it this
    /// waits until `deadline`.
    pub(super) async fn ask(&self, question: String, deadline: Instant) {
        self.cell.streams.store(true, Ordering::Relaxed);
        let asking = self.replies.send(Reply::Relay(question));
        let _ = tokio::time::timeout_at(deadline, asking).await;
    }

    /// A notification. Waits while the client is slow, but not past `until`, and then the client
    /// misses this one and those after it, until it reads again.
    pub(super) async fn tell(&self, notification: String, until: Option<Instant>) {
        self.cell.streams.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let until = if self.is_slow.load(Ordering::Relaxed) {
            now
        } else {
            until.map_or(now + SLOW_CLIENT, |until| until.min(now + SLOW_CLIENT))
        };
        let places = self.replies.reserve_many(QUESTIONS_MAX + 1);
        let told = match tokio::time::timeout_at(until, places).await {
            Ok(Ok(mut places)) => {
                if let Some(place) = places.next() {
                    place.send(Reply::Relay(notification));
                }
                true
            }
            Ok(Err(_closed)) => true,
            Err(_elapsed) => false,
        };
        self.is_slow.store(!told, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn note(number: usize) -> String {
        number.to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_holds_nothing_up_for_long() {
        let (seat, mut client) = seat();
        let began = Instant::now();
        for number in 0..REPLIES_MAX {
            seat.tell(note(number), None).await;
        }
        assert_eq!(Instant::now() - began, Duration::ZERO);
        seat.tell(note(100), None).await;
        assert_eq!(Instant::now() - began, SLOW_CLIENT);
        // From here on it is known to be slow.
        for number in 101..200 {
            seat.tell(note(number), None).await;
        }
        for number in 0..QUESTIONS_MAX {
            seat.ask(note(number), began + Duration::from_secs(1000))
                .await;
        }
        seat.answer(Answer::StoreUnavailable(SideEffect::None));
        assert_eq!(Instant::now() - began, SLOW_CLIENT);
        for number in 0..REPLIES_MAX {
            let Some(Reply::Relay(told)) = client.next().await else {
                panic!("{number} is missing");
            };
            assert_eq!(told, note(number));
        }
        for _ in 0..QUESTIONS_MAX {
            assert!(matches!(client.next().await, Some(Reply::Relay(_))));
        }
        assert!(matches!(client.next().await, Some(Reply::Answer(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_becomes_a_task_in_time_and_who_reads_again_is_told_again() {
        let (seat, mut client) = seat();
        let began = Instant::now();
        let window = began + Duration::from_secs(1);
        for number in 0..=REPLIES_MAX {
            seat.tell(note(number), Some(window)).await;
        }
        assert_eq!(Instant::now() - began, Duration::from_secs(1));
        assert!(client.next().await.is_some());
        seat.tell(note(77), None).await;
        let mut last = String::new();
        for _ in 0..REPLIES_MAX {
            if let Some(Reply::Relay(told)) = client.next().await {
                last = told;
            }
        }
        assert_eq!(last, note(77));
    }
}
