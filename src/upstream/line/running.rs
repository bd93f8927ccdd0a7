//! The requests that run on a legacy client's session, the client's and ours, and who hears of each.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::upstream::failures::RESET;
use crate::upstream::line::borrowed::BorrowedResponder;
use crate::upstream::line::borrowed::StrayMessage;
use crate::upstream::line::writer::SendState;
use crate::upstream::port::{Event, UpstreamError};
use crate::upstream::request_id::RequestId;
use crate::upstream::server_message::ServerMessage;

/// What the server says on the stream of one request, as JSON.
#[derive(Debug)]
pub enum SessionEvent {
    /// A notification, or a request of the server's own.
    Message(String),
    /// The answer. Nothing follows.
    Answer(String),
}

pub(super) struct RunningRequest {
    pub(super) reader: RequestReader,
    pub(super) send_state: Arc<SendState>,
    pub(super) token: Option<RequestId>,
    pub(super) is_handshake: bool,
}

/// Whose request it is.
pub(super) enum RequestReader {
    Client {
        id: Box<RawValue>,
        said: mpsc::Sender<SessionEvent>,
        answer: mpsc::OwnedPermit<SessionEvent>,
    },
    Borrowed(BorrowedResponder),
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    Failed(Failure),
    /// The server's own words, beside the line.
    Error(UpstreamError),
}

impl From<NoAnswer> for Event {
    fn from(end: NoAnswer) -> Self {
        match end {
            NoAnswer::Failed(failure) => Self::Failed(failure),
            NoAnswer::Error(error) => Self::Error(error),
        }
    }
}

impl RunningRequest {
    /// Without an answer; for that reason where it was not even sent.
    pub(super) fn end(self, unsent: Reason) {
        let failure = if self.send_state.withdraw() {
            Failure::new(unsent, SideEffect::None)
        } else {
            RESET
        };
        self.reader.fail(NoAnswer::Failed(failure));
    }
}

impl RequestReader {
    pub(super) fn is_there(&self) -> bool {
        match self {
            Self::Client { said, .. } => !said.is_closed(),
            Self::Borrowed(responder) => responder.is_taken(),
        }
    }

    /// False where the message is none for this reader, or the reader is slow.
    pub(super) fn say(&self, stray: StrayMessage<'_>) -> bool {
        match self {
            Self::Client { said, .. } => {
                let message = SessionEvent::Message(stray.text.to_owned());
                said.try_send(message).is_ok()
            }
            Self::Borrowed(responder) => responder.say(stray),
        }
    }

    /// The server's answer, and its text. What a client makes of it is the client's matter.
    pub(super) fn answer(self, message: ServerMessage, text: &str) {
        let responder = match (self, &message) {
            (Self::Borrowed(responder), _) => responder,
            (
                client @ Self::Client { .. },
                ServerMessage::Unreadable {
                    failure,
                    is_utf8: false,
                    ..
                },
            ) => return client.fail(NoAnswer::Failed(*failure)),
            (Self::Client { answer, .. }, _) => {
                answer.send(SessionEvent::Answer(text.to_owned()));
                return;
            }
        };
        responder.end(match message {
            ServerMessage::Result { result, .. } => Event::Result(result),
            ServerMessage::Error { error, .. } => Event::Error(UpstreamError::in_message(error)),
            ServerMessage::Unreadable { failure, .. } => Event::Failed(failure),
            ServerMessage::Primed
            | ServerMessage::Request { .. }
            | ServerMessage::Notification { .. } => Event::Failed(RESET),
        });
    }

    /// There is no answer on the line, but that one in its place.
    pub(super) fn fail(self, end: NoAnswer) {
        let (id, answer) = match self {
            Self::Borrowed(responder) => return responder.end(end.into()),
            Self::Client { id, answer, .. } => (id, answer),
        };
        let error = match end {
            NoAnswer::Error(error) => error.error.get().to_owned(),
            NoAnswer::Failed(failure) => failure.to_error().to_json(),
        };
        answer.send(SessionEvent::Answer(envelope::error(id.get(), &error)));
    }
}
