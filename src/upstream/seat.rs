//! The place of a call at the server, which it has before anything is sent.

use crate::mcp::version::Era;
use crate::upstream::line::pool::PooledLine;
use crate::upstream::pool::SlotUse;
use crate::upstream::sessions::session::ServerSession;

/// The place of one call at a server of a known era. Dropped, it is free for another call.
#[derive(Debug)]
pub struct Seat {
    era: Era,
    pub(super) place: SeatPlace,
}

/// The place that a call uses at the server.
#[derive(Debug)]
pub(super) enum SeatPlace {
    /// The server has no sessions, or the request finds one when it is sent.
    Any,
    /// A session, which is started with the call if it is not there yet.
    Session(SlotUse<ServerSession>),
    Line(PooledLine),
}

impl Seat {
    /// A place at a server that has no sessions.
    pub fn anywhere(era: Era) -> Self {
        Self::new(era, SeatPlace::Any)
    }

    pub(super) fn new(era: Era, place: SeatPlace) -> Self {
        Self { era, place }
    }

    /// The era of the server.
    pub fn era(&self) -> Era {
        self.era
    }
}
