//! A running request of a legacy client: the way to the client, and the way of the client's answers and cancel.

use tokio::sync::mpsc;

use crate::downstream::calls::registry::CallEntry;
use crate::downstream::outbound::stream::ResponseEvent;

/// A running request and its client.
pub(super) struct Conversation {
    pub(super) events: mpsc::Sender<ResponseEvent>,
    pub(super) call: CallEntry,
}
