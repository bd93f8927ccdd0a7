//! One item of a server's messages about a call.

use bytes::Bytes;

/// One item of a server's messages about a call.
#[derive(Debug)]
pub(in crate::downstream) enum StreamItem {
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
