//! One item of a server's messages about a call, as the log takes it.

use bytes::Bytes;

use crate::downstream::outbound::stream::ResponseEvent;

/// One item of a server's messages about a call.
#[derive(Debug)]
pub(super) enum StreamItem {
    /// A notification, or a request of the server's. `event_id`: the server's own.
    Message {
        json: String,
        event_id: Option<String>,
    },
    /// An event that is no message, as it goes to the client. `event_id`: the server's own.
    Other {
        event: Bytes,
        event_id: Option<String>,
    },
    /// The call can be resumed behind this event, which had no message.
    EventId(String),
    Answer(String),
    /// There will be no answer.
    End,
}

impl From<ResponseEvent> for StreamItem {
    fn from(event: ResponseEvent) -> Self {
        match event {
            ResponseEvent::Message(json) => Self::Message {
                json,
                event_id: None,
            },
            ResponseEvent::Other(event) => Self::Other {
                event,
                event_id: None,
            },
            ResponseEvent::Answer(answer) => Self::Answer(answer.json),
        }
    }
}
