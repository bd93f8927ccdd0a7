//! The place at the server of a leg that has passed the limits: a session or a process, where the server has such.

use std::sync::Arc;

use super::queue_message::queue_message;
use crate::mcp::version::Era;
use crate::runner::server::WrappedServer;
use crate::upstream::{Event, Seat, SeatNews, SeatWait, Seating, UpstreamRequest};

/// The progress of a leg on the way to its place.
#[derive(Debug)]
pub(super) enum SeatTurn {
    /// The leg needs no place, or has it.
    Anywhere,
    /// The limits come first.
    Wanted(Box<SeatWanted>),
    Waits(Box<SeatWait>),
}

/// The place that a leg asks for.
#[derive(Debug)]
pub(super) struct SeatWanted {
    pub(super) server: Arc<dyn WrappedServer>,
    /// `None`: the leg waits until the era is known, too.
    pub(super) era: Option<Era>,
    pub(super) outgoing: UpstreamRequest,
}

impl SeatTurn {
    /// Resolves with the place. `None`: the leg needs none. `Err`: there will be none, and this is the end of the call.
    ///
    /// Cancel safe: the position in the queue stays.
    pub(super) async fn seat(&mut self) -> Result<Option<Seat>, Event> {
        if let Self::Wanted(wanted) = self {
            match wanted.server.seat(wanted.era, &wanted.outgoing) {
                Seating::Now(seat) => {
                    *self = Self::Anywhere;
                    return Ok(Some(seat));
                }
                Seating::Waits(wait) => *self = Self::Waits(wait),
            }
        }
        let Self::Waits(wait) = self else {
            return Ok(None);
        };
        let seat = wait.seat().await;
        // A wait that has resolved must not be polled again.
        *self = Self::Anywhere;
        seat.map(Some)
    }

    /// Returns the message that a client may receive about the call.
    pub(super) fn message(&self) -> Box<str> {
        match self {
            Self::Anywhere | Self::Wanted(_) => queue_message(0),
            Self::Waits(wait) => match wait.news() {
                SeatNews::Starting => "The server is starting".into(),
                SeatNews::Unanswered => "Waiting for the first answer of the server".into(),
                SeatNews::Ahead(calls) => queue_message(calls),
            },
        }
    }
}
