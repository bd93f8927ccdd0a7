//! What the event requests of a process share: places for streams, and turns for scans.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::resizable::{ResizablePermit, ResizableSemaphore};
use crate::shares::{Share, Shares};
use crate::task::id::Caller;

/// The most event streams of one caller, and of this process.
pub(super) const STREAMS_OF_CALLER: usize = 64;
const STREAMS: usize = 1024;

/// The most scans of records at the same time. A scan may read many records, and further scans wait for their turn.
const SCANS: usize = 8;

/// What the events of this process share. It exists where `events.enabled` is set.
#[derive(Debug)]
pub struct Events {
    of_caller: Arc<Shares>,
    streams: Arc<ResizableSemaphore>,
    pub(super) scans: Semaphore,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            of_caller: Shares::new(STREAMS_OF_CALLER),
            streams: ResizableSemaphore::new(STREAMS),
            scans: Semaphore::new(SCANS),
        }
    }
}

/// The place of one event stream. Dropping it gives the place back.
pub(super) struct Place {
    _of_caller: Share,
    _of_process: ResizablePermit,
}

impl Events {
    /// `None`: the caller, or all callers together, have as many streams as they may.
    pub(super) fn place(&self, caller: Caller) -> Option<Place> {
        Some(Place {
            _of_caller: self.of_caller.take(caller, 1)?,
            _of_process: self.streams.try_take().ok()?,
        })
    }
}
