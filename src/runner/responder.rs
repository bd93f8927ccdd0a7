//! The two sides of a client that waits for its call: the responder of the carrier or follower, and the subscriber of
//! the connection. One cell decides, once, whether the client received the answer or went away before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::client_note::ClientNote;
use crate::base::failpoint::{Point, hit};
use crate::base::lock::Mutex;
use crate::mcp::error::{Failure, SideEffect};
use crate::mcp::input::QUESTIONS_MAX;
use crate::upstream::{self, UpstreamError};

/// The most notifications that wait for a slow client.
const REPLIES_MAX: usize = 8;

/// The longest time that a client that does not read delays its call: a little longer than its connection is kept.
/// After that it misses notifications until it reads again, because the call must not stand still.
const SLOW_CLIENT: Duration = Duration::from_secs(35);

/// A message that a subscriber receives.
#[derive(Debug)]
pub enum Reply {
    /// Before the answer, as JSON: a JSON-RPC notification, or a request of a legacy server to a legacy
    /// client. The client answers a request through [`CallSubscriber::answers`].
    Relay(String),
    /// The answer. Nothing follows.
    Answer(CallAnswer),
}

/// The answer to a call.
#[derive(Debug)]
pub enum CallAnswer {
    /// A result as the client may see it, as JSON.
    Result(Box<str>),
    Error(UpstreamError),
    Failed(Failure),
    /// The store did not answer in time. The effect shows whether the call may have run.
    StoreUnavailable(SideEffect),
}

impl CallAnswer {
    /// `json`: the result as the client may see it.
    pub fn result(json: impl Into<Box<str>>) -> Self {
        Self::Result(json.into())
    }
}

/// The client's answer to a question that was relayed to it.
#[derive(Debug)]
pub struct RelayedAnswer {
    /// The server's JSON-RPC id, as JSON.
    pub id: Arc<str>,
    pub answer: upstream::Answer,
}

/// The decision whether the client received the answer or went away: made once, by the event that comes first.
#[derive(Debug, Default)]
struct Cell {
    state: AtomicU8,
    /// `true` if the subscriber receives events on a stream from now on.
    streams: AtomicBool,
    note: ClientNote,
    gone: Notify,
}

const ANNOUNCING: u8 = 0;
const ANNOUNCED: u8 = 1;
const GONE: u8 = 2;

/// Makes the two sides. `note`: of the client's front.
pub(super) fn pair(note: ClientNote) -> (Responder, CallSubscriber) {
    let cell = Arc::new(Cell {
        note,
        ..Cell::default()
    });
    // Questions and the answer have room in the queue that no notification takes.
    let (replies, receiver) = mpsc::channel(REPLIES_MAX + QUESTIONS_MAX + 1);
    let (answers, answered) = mpsc::channel(QUESTIONS_MAX);
    (
        Responder {
            answer: Mutex::new(replies.clone().try_reserve_owned().ok()),
            is_slow: AtomicBool::new(false),
            replies,
            answered,
            cell: Arc::clone(&cell),
        },
        CallSubscriber {
            receiver,
            answers,
            cell: DeliveryGuard(cell),
        },
    )
}

/// The side of the carrier or follower.
#[derive(Debug)]
pub(super) struct Responder {
    replies: mpsc::Sender<Reply>,
    /// The room of the answer, until it is given.
    answer: Mutex<Option<mpsc::OwnedPermit<Reply>>>,
    /// The client missed the last notification.
    is_slow: AtomicBool,
    answered: mpsc::Receiver<RelayedAnswer>,
    cell: Arc<Cell>,
}

impl Responder {
    /// The client's presence, and its answers to relayed questions: a carrier waits for both at the same time.
    pub(super) fn client(&mut self) -> (Presence<'_>, &mut mpsc::Receiver<RelayedAnswer>) {
        (Presence(&self.cell), &mut self.answered)
    }

    /// See [`Presence::gone`].
    pub(super) async fn gone(&self) {
        Presence(&self.cell).gone().await;
    }

    /// Returns `true` if the client has received the answer by now.
    pub(super) fn was_told(&self) -> bool {
        Presence(&self.cell).was_told()
    }

    /// Returns `true` if the client has gone away before it received the answer.
    pub(super) fn is_gone(&self) -> bool {
        self.cell.state.load(Ordering::Acquire) == GONE
    }

    /// Returns `true` if nothing more comes from the client: it has received the answer, and every answer to a
    /// relayed question was taken.
    pub(super) fn is_over(&self) -> bool {
        self.was_told() && self.answered.is_closed() && self.answered.is_empty()
    }

    /// Resolves when it is decided whether the client received the answer: `true` if it did.
    pub(super) async fn settled(&self) -> bool {
        Presence(&self.cell).settled().await
    }

    /// The note of the client's front.
    pub(super) fn note(&self) -> &ClientNote {
        &self.cell.note
    }

    /// Returns `true` if the answer would be an event on a stream by now.
    pub(super) fn streams(&self) -> bool {
        self.cell.streams.load(Ordering::Relaxed)
    }

    /// Gives the answer. Never waits; of several answers the first counts.
    pub(super) fn answer(&self, answer: CallAnswer) {
        let place = self.answer.lock().take();
        // The cell notices a client that went away.
        if let Some(place) = place {
            place.send(Reply::Answer(answer));
        }
    }

    /// Relays a request of the server. There is room for all that may be open at once; for more this waits
    /// until `deadline`.
    pub(super) async fn ask(&self, question: String, deadline: Instant) {
        self.cell.streams.store(true, Ordering::Relaxed);
        let asking = self.replies.send(Reply::Relay(question));
        let _ = tokio::time::timeout_at(deadline, asking).await;
    }

    /// Relays a notification. Waits for a slow client, but not past `until`. Then the client misses this
    /// notification and those after it, until it reads again.
    pub(super) async fn tell(&self, notification: String, until: Option<Instant>) {
        self.cell.streams.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let until = if self.is_slow.load(Ordering::Relaxed) {
            now
        } else {
            until.map_or(now + SLOW_CLIENT, |until| until.min(now + SLOW_CLIENT))
        };
        // A notification takes a place only if as many are left as questions may need at the same time.
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

/// The presence of the client.
#[derive(Clone, Copy)]
pub(super) struct Presence<'s>(&'s Cell);

impl Presence<'_> {
    /// Returns `true` if the client has received the answer by now.
    pub(super) fn was_told(self) -> bool {
        self.0.state.load(Ordering::Acquire) == ANNOUNCED
    }

    /// See [`ClientNote::sent_again`].
    pub(super) async fn sent_again(self) {
        self.0.note.sent_again().await;
    }

    /// Resolves when the client has gone away before it received the answer. Never resolves after the client received
    /// the answer.
    ///
    /// Cancel safe.
    pub(super) async fn gone(self) {
        if self.settled().await {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when it is decided whether the client received the answer: `true` if it did.
    ///
    /// Cancel safe.
    pub(super) async fn settled(self) -> bool {
        loop {
            match self.0.state.load(Ordering::Acquire) {
                GONE => return false,
                ANNOUNCED => return true,
                // `notify_one` leaves a permit, so a decision between the check and the wait is not lost.
                _ => self.0.gone.notified().await,
            }
        }
    }
}

/// The side of the connection. If it is dropped before the answer was written, the client counts as gone.
#[derive(Debug)]
pub struct CallSubscriber {
    receiver: mpsc::Receiver<Reply>,
    answers: mpsc::Sender<RelayedAnswer>,
    cell: DeliveryGuard,
}

impl CallSubscriber {
    /// Cancel safe. `None`: the call ended without an answer, which only a panic can cause.
    pub async fn next(&mut self) -> Option<Reply> {
        self.receiver.recv().await
    }

    /// The way for answers to relayed questions. An answer that comes too late is lost.
    pub fn answers(&self) -> mpsc::Sender<RelayedAnswer> {
        self.answers.clone()
    }

    /// Notes that the head of the response went out: the answer will be an event.
    pub fn begin_stream(&self) {
        self.cell.0.streams.store(true, Ordering::Relaxed);
    }

    /// Takes the guard, for a response body to hold until it was polled to its end.
    pub fn into_guard(self) -> DeliveryGuard {
        self.cell
    }
}

/// Reports the client as gone, if it is dropped before the answer was written.
#[derive(Debug)]
pub struct DeliveryGuard(Arc<Cell>);

impl DeliveryGuard {
    /// Notes that the answer was handed to the connection.
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

impl Drop for DeliveryGuard {
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
        let (responder, mut client) = pair(ClientNote::default());
        let began = Instant::now();
        for number in 0..REPLIES_MAX {
            responder.tell(note(number), None).await;
        }
        assert_eq!(Instant::now() - began, Duration::ZERO);
        responder.tell(note(100), None).await;
        assert_eq!(Instant::now() - began, SLOW_CLIENT);
        // The client is known to be slow after the first 100 notifications.
        for number in 101..200 {
            responder.tell(note(number), None).await;
        }
        for number in 0..QUESTIONS_MAX {
            responder
                .ask(note(number), began + Duration::from_secs(1000))
                .await;
        }
        responder.answer(CallAnswer::StoreUnavailable(SideEffect::None));
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

    #[tokio::test]
    async fn a_client_that_was_told_is_over_once_its_answers_were_taken() {
        let (mut responder, client) = pair(ClientNote::default());
        let answers = client.answers();
        assert!(!responder.is_over());
        client.into_guard().announce();
        assert!(responder.was_told() && !responder.is_over());
        let answered = RelayedAnswer {
            id: "1".into(),
            answer: upstream::Answer::Result("{}".into()),
        };
        answers.try_send(answered).unwrap();
        drop(answers);
        assert!(!responder.is_over());
        assert!(responder.client().1.recv().await.is_some());
        assert!(responder.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_becomes_a_task_in_time_and_who_reads_again_is_told_again() {
        let (responder, mut client) = pair(ClientNote::default());
        let began = Instant::now();
        let window = began + Duration::from_secs(1);
        for number in 0..=REPLIES_MAX {
            responder.tell(note(number), Some(window)).await;
        }
        assert_eq!(Instant::now() - began, Duration::from_secs(1));
        assert!(client.next().await.is_some());
        responder.tell(note(77), None).await;
        let mut last = String::new();
        for _ in 0..REPLIES_MAX {
            if let Some(Reply::Relay(told)) = client.next().await {
                last = told;
            }
        }
        assert_eq!(last, note(77));
    }
}
