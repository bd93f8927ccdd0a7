//! What is known of the requests on one line, and of who listens to it.

use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tracing::debug;

use crate::upstream::channel::event::{LineEvent, Notice};
use crate::upstream::channel::writer::SendState;
use crate::upstream::inflight::Inflight;

/// Changes of the server that wait for a listener; one that is slower starts anew.
const NOTICES_MAX: usize = 64;

pub(super) struct LineState {
    pub(super) inflight: Inflight<u64, Pending>,
    pub(super) is_open: bool,
    /// Gone with the line, so that listeners come to an end.
    pub(super) notices: Option<broadcast::Sender<Arc<Notice>>>,
    pub(super) ignored: u64,
}

/// A request that waits for its answer.
pub(super) struct Pending {
    pub(super) events: mpsc::Sender<LineEvent>,
    pub(super) answer: mpsc::OwnedPermit<LineEvent>,
    pub(super) send_state: Arc<SendState>,
    /// Its client was asked, and may be asked again.
    pub(super) has_asked: bool,
}

impl LineState {
    pub(super) fn new() -> Self {
        Self {
            inflight: Inflight::default(),
            is_open: true,
            notices: Some(broadcast::Sender::new(NOTICES_MAX)),
            ignored: 0,
        }
    }
}

impl Pending {
    /// What is said is dropped where the reader is slow.
    pub(super) fn put(&self, said: LineEvent) {
        if self.events.try_send(said).is_err() {
            debug!("a notification to a slow reader was dropped");
        }
    }
}
