//! The requests that run on a legacy client's session, the client's and ours, and who hears of each.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::super::failures::RESET;
use super::super::port::{Event, UpstreamError};
use super::mouth::Passage;
use super::seat::Seat;
use super::seat::Stray;
use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::heard::Message;
use crate::upstream::request_id::RequestId;

/// What the server says on the stream of one request, as JSON.
#[derive(Debug)]
pub enum Said {
    /// A notification, or a request of the server's own.
    Message(String),
    /// The answer. Nothing follows.
    Answer(String),
}

pub(super) struct Running {
    pub(super) reader: Reader,
    pub(super) passage: Arc<Passage>,
    pub(super) token: Option<RequestId>,
    pub(super) is_handshake: bool,
}

/// Whose request it is.
pub(super) enum Reader {
    Client {
        id: Box<RawValue>,
        said: mpsc::Sender<Said>,
        answer: mpsc::OwnedPermit<Said>,
    },
    Guest(Seat),
}

/// Why there is no answer.
pub(super) enum Unanswered {
    Failed(Failure),
    /// The server's own words, beside the line.
    Error(UpstreamError),
}

impl From<Unanswered> for Event {
    fn from(end: Unanswered) -> Self {
        match end {
            Unanswered::Failed(failure) => Self::Failed(failure),
            Unanswered::Error(error) => Self::Error(error),
        }
    }
}

impl Running {
    /// Without an answer; for that reason where it was not even sent.
    pub(super) fn end(self, unsent: Reason) {
        let failure = if self.passage.withdraw() {
            Failure::new(unsent, SideEffect::None)
        } else {
            RESET
        };
        self.reader.fail(Unanswered::Failed(failure));
    }
}

impl Reader {
    pub(super) fn is_there(&self) -> bool {
        match self {
            Self::Client { said, .. } => !said.is_closed(),
            Self::Guest(seat) => seat.is_taken(),
        }
    }

    /// False where the message is none for this reader, or the reader is slow.
    pub(super) fn say(&self, stray: Stray<'_>) -> bool {
        match self {
            Self::Client { said, .. } => {
                let message = Said::Message(stray.text.to_owned());
                said.try_send(message).is_ok()
            }
            Self::Guest(seat) => seat.say(stray),
        }
    }

    /// The server's answer, and its text. What a client makes of it is the client's matter.
    pub(super) fn answer(self, message: Message, text: &str) {
        let seat = match (self, &message) {
            (Self::Guest(seat), _) => seat,
            (
                client @ Self::Client { .. },
                Message::Unreadable {
                    failure,
                    is_utf8: false,
                    ..
                },
            ) => return client.fail(Unanswered::Failed(*failure)),
            (Self::Client { answer, .. }, _) => {
                answer.send(Said::Answer(text.to_owned()));
                return;
            }
        };
        seat.end(match message {
            Message::Result { result, .. } => Event::Result(result),
            Message::Error { error, .. } => Event::Error(UpstreamError::in_message(error)),
            Message::Unreadable { failure, .. } => Event::Failed(failure),
            Message::Primed | Message::Request { .. } | Message::Notification { .. } => {
                Event::Failed(RESET)
            }
        });
    }

    /// There is no answer on the line, but that one in its place.
    pub(super) fn fail(self, end: Unanswered) {
        let (id, answer) = match self {
            Self::Guest(seat) => return seat.end(end.into()),
            Self::Client { id, answer, .. } => (id, answer),
        };
        let error = match end {
            Unanswered::Error(error) => error.error.get().to_owned(),
            Unanswered::Failed(failure) => failure.to_error().to_json(),
        };
        answer.send(Said::Answer(envelope::error(id.get(), &error)));
    }
}
