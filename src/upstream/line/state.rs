//! The state of the requests on one line, and the listeners of the line.

use std::sync::Arc;

use tokio::sync::{broadcast, mpsc};
use tracing::debug;

use crate::upstream::inflight::Inflight;
use crate::upstream::line::event::{LineEvent, LineNotice};
use crate::upstream::line::writer::SendState;
use crate::upstream::reader_queue::{Full, ReaderQueue};

/// Notifications that wait for a subscription. A subscription that is slower begins anew.
const NOTICES_MAX: usize = 64;

pub(super) struct LineState {
    pub(super) inflight: Inflight<u64, Pending>,
    pub(super) is_open: bool,
    /// `None` after the end of the line, so that subscriptions end, too.
    pub(super) notices: Option<broadcast::Sender<Arc<LineNotice>>>,
    pub(super) ignored: u64,
    /// The wait for the reader whose queue the last message has filled.
    pub(super) full: Option<Full>,
}

/// A request that waits for its answer.
pub(super) struct Pending {
    pub(super) events: ReaderQueue<LineEvent>,
    pub(super) answer: mpsc::OwnedPermit<LineEvent>,
    pub(super) send_state: Arc<SendState>,
    /// The client of the request was asked, and may be asked again.
    pub(super) has_asked: bool,
}

impl LineState {
    pub(super) fn new() -> Self {
        Self {
            inflight: Inflight::default(),
            is_open: true,
            notices: Some(broadcast::Sender::new(NOTICES_MAX)),
            ignored: 0,
            full: None,
        }
    }
}

impl Pending {
    /// Gives an event to the reader of the request, and returns the wait for a reader whose queue is full now. The
    /// event is dropped if the reader is slow.
    pub(super) fn put(&self, said: LineEvent) -> Option<Full> {
        if !self.events.put(said) {
            debug!("a notification to a slow reader was dropped");
        }
        self.events.full()
    }
}
