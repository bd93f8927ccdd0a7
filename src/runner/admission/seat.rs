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
    /// The leg waits for the place that it wants.
    Waits(Box<SeatWait>, Box<SeatWanted>),
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
        *self = match std::mem::replace(self, Self::Anywhere) {
            Self::Wanted(wanted) => match wanted.server.seat(wanted.era, &wanted.outgoing) {
                Seating::Now(seat) => return Ok(Some(seat)),
                Seating::Waits(wait) => Self::Waits(wait, wanted),
            },
            turn @ (Self::Anywhere | Self::Waits(..)) => turn,
        };
        let Self::Waits(wait, _) = self else {
            return Ok(None);
        };
        let seat = wait.seat().await;
        // A wait that has resolved must not be polled again.
        *self = Self::Anywhere;
        seat.map(Some)
    }

    /// Gives the position in the queue back.
    pub(super) fn begin_anew(&mut self) {
        *self = match std::mem::replace(self, Self::Anywhere) {
            Self::Waits(_, wanted) => Self::Wanted(wanted),
            turn @ (Self::Anywhere | Self::Wanted(_)) => turn,
        };
    }

    /// Returns the message that a client may receive about the call.
    pub(super) fn message(&self) -> Box<str> {
        match self {
            Self::Anywhere | Self::Wanted(_) => queue_message(0),
            Self::Waits(wait, _) => match wait.news() {
                SeatNews::Starting => "The server is starting".into(),
                SeatNews::Unanswered => "Waiting for the first answer of the server".into(),
                SeatNews::Ahead(calls) => queue_message(calls),
            },
        }
    }
}
