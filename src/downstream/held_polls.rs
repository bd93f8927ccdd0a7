//! The places for held polls: how many polls wait at the same time, of one caller, one connection, and in all.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::inbound::requester::Requester;
use crate::base::limit_fill::HELD_POLLS;
use crate::sharing::resizable::{ResizablePermit, ResizableSemaphore};
use crate::sharing::shares::{Share, Shares};
use crate::telemetry::counted::Counted;

/// The places for held polls of this process.
#[derive(Debug)]
pub struct HeldPolls {
    places: Arc<ResizableSemaphore>,
    /// The held polls of each caller, where clients must identify themselves.
    shares: Option<Arc<Shares>>,
}

/// The place of one held poll. Dropping it gives the place back.
pub(super) struct Place {
    _of_process: ResizablePermit,
    _held: Counted,
    _of_caller: Option<Share>,
    _of_connection: Option<OwnedSemaphorePermit>,
}

impl HeldPolls {
    /// `of_each_caller`: the most of one caller, where clients must identify themselves.
    pub fn new(places: usize, of_each_caller: Option<usize>) -> Self {
        HELD_POLLS.set_limit(places);
        Self {
            places: ResizableSemaphore::new(places),
            shares: of_each_caller.map(Shares::new),
        }
    }

    /// Changes how many polls are held. Those beyond it are held to their end.
    pub fn resize(&self, places: usize, of_each_caller: usize) {
        HELD_POLLS.set_limit(places);
        self.places.resize(places);
        if let Some(shares) = &self.shares {
            shares.resize(of_each_caller);
        }
    }

    /// `None`: the poll is answered at once.
    pub(super) fn place(&self, by: &Requester) -> Option<Place> {
        let of_connection = match &by.connection_polls {
            Some(polls) => Some(polls.take()?),
            None => None,
        };
        let of_caller = match &self.shares {
            Some(shares) => Some(shares.take(by.caller, 1)?),
            None => None,
        };
        Some(Place {
            // Taken last: a caller or a connection beyond its own bound uses up no place of the process.
            _of_process: self.places.try_take().ok()?,
            _held: Counted::held_poll(),
            _of_caller: of_caller,
            _of_connection: of_connection,
        })
    }
}
