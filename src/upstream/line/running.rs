//! The requests that run on a legacy client's session: the client's own, and those that raincheck borrowed the
//! session for. Each has a reader.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::mcp::envelope;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::json::set;
use crate::upstream::failures::{INVALID, RESET};
use crate::upstream::line::borrowed::BorrowedResponder;
use crate::upstream::line::borrowed::StrayMessage;
use crate::upstream::line::writer::SendState;
use crate::upstream::port::{Event, UpstreamError};
use crate::upstream::reader_queue::{Full, ReaderQueue};
use crate::upstream::request_id::RequestId;
use crate::upstream::server_message::{ServerMessage, is_readable_elsewhere};

/// A message of the server on the stream of one request, as JSON.
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

/// The reader of the server's messages about a request.
pub(super) enum RequestReader {
    Client {
        id: Box<RawValue>,
        /// The id under which the server has the request, if it is another one.
        renamed: Option<RequestId>,
        said: ReaderQueue<SessionEvent>,
        answer: mpsc::OwnedPermit<SessionEvent>,
    },
    Borrowed(BorrowedResponder),
}

/// Why there is no answer.
pub(super) enum LineCallError {
    Failed(Failure),
    /// An error that the server gave in another way than over the line.
    Error(UpstreamError),
}

impl From<LineCallError> for Event {
    fn from(end: LineCallError) -> Self {
        match end {
            LineCallError::Failed(failure) => Self::Failed(failure),
            LineCallError::Error(error) => Self::Error(error),
        }
    }
}

impl RunningRequest {
    /// Ends the request without an answer. `unsent` is the reason if the request was not sent.
    pub(super) fn end(self, unsent: Reason) {
        // The verdict is made once: a request that is withdrawn here is never sent, so it may be made again.
        let failure = if self.send_state.withdraw() {
            Failure::new(unsent, SideEffect::None)
        } else {
            RESET
        };
        self.reader.fail(LineCallError::Failed(failure));
    }
}

impl RequestReader {
    pub(super) fn is_there(&self) -> bool {
        match self {
            Self::Client { said, .. } => !said.is_closed(),
            Self::Borrowed(responder) => responder.is_taken(),
        }
    }

    /// Returns `true` if a client sent the request under that id.
    pub(super) fn is_of_client(&self, id: &RequestId) -> bool {
        matches!(self, Self::Client { id: own, .. } if RequestId::read(own.get()) == *id)
    }

    /// Returns the id under which the server has the request, if it is not the client's.
    pub(super) fn renamed(&self) -> Option<&RequestId> {
        match self {
            Self::Client { renamed, .. } => renamed.as_ref(),
            Self::Borrowed(_) => None,
        }
    }

    /// Gives a message to the reader. False if the reader cannot use it, or is slow.
    pub(super) fn say(&self, stray: StrayMessage<'_>) -> bool {
        match self {
            Self::Client { said, .. } => {
                let message = SessionEvent::Message(stray.text.to_owned());
                said.put(message)
            }
            Self::Borrowed(responder) => responder.say(stray),
        }
    }

    /// Returns the wait for the reader, if its queue is full.
    pub(super) fn full(&self) -> Option<Full> {
        match self {
            Self::Client { said, .. } => said.full(),
            Self::Borrowed(responder) => responder.full(),
        }
    }

    /// Gives the server's answer to the reader. A client gets the text as it is, under its own id.
    pub(super) fn answer(self, message: ServerMessage, text: &str) {
        // A client would go on waiting after an answer that it cannot read, so it gets an error in its place.
        let responder = match (self, &message) {
            (Self::Borrowed(responder), _) => responder,
            (
                client @ Self::Client { .. },
                ServerMessage::Unreadable {
                    failure, is_utf8, ..
                },
            ) if !is_utf8
                || (failure.reason == Reason::UpstreamInvalid && !is_readable_elsewhere(text)) =>
            {
                return client.fail(LineCallError::Failed(failure.clone()));
            }
            (
                Self::Client {
                    id,
                    renamed: Some(_),
                    answer,
                    ..
                },
                _,
            ) => {
                // What cannot be edited, such as a text with NaN, would come under an id that the client does not know.
                let answered = set(text, "id", id.get())
                    .unwrap_or_else(|_| envelope::error(id.get(), &INVALID.to_error().to_json()));
                answer.send(SessionEvent::Answer(answered));
                return;
            }
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

    /// Ends the request with an error in place of an answer.
    pub(super) fn fail(self, end: LineCallError) {
        let (id, answer) = match self {
            Self::Borrowed(responder) => return responder.end(end.into()),
            Self::Client { id, answer, .. } => (id, answer),
        };
        let error = match end {
            LineCallError::Error(error) => error.error.get().to_owned(),
            LineCallError::Failed(failure) => failure.to_error().to_json(),
        };
        answer.send(SessionEvent::Answer(envelope::error(id.get(), &error)));
    }
}
