//! The progress of the current leg of a call on its way to the server.

use futures_util::StreamExt as _;

use super::super::admission::{Admittance, HeldPermits, Permits, QueuedLeg, queue_message};
use crate::upstream::{Event, Exchange, Seat};

/// Where the current leg is.
pub(super) enum Dispatch {
    /// The leg waits for its permits. Nothing of the call is at the server.
    Queued(Box<QueuedLeg>),
    /// The leg had its permits, but the commit that it goes out failed. The leg joins the queue again soon.
    Requeues,
    /// The leg may go out: before the first leg, and between two legs of a server that asks nothing.
    Ready(Permits),
    /// The leg is at the server.
    Open(OpenLeg),
    /// This carrier sends nothing more.
    Over,
}

/// A leg at the server. Its exchange is dropped before its permits.
pub(super) struct OpenLeg {
    pub(super) exchange: Exchange,
    pub(super) permits: HeldPermits,
    pub(super) origin: LegOrigin,
}

/// The origin of a leg that is open here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LegOrigin {
    /// This carrier sent it.
    Sent,
    /// Another process sent the call: only the stored part of the request is known. The limits count the leg
    /// in the process that sent it.
    Adopted,
    /// The server made a task of its own of the call, which is followed to its end.
    Followed,
}

/// The event that a leg waited for.
pub(super) enum Arrival {
    /// `Err`: the leg has no place at the server, and this is the end of the call.
    Permits(Result<Permits, Event>),
    /// `None`: the server's stream ended without an answer.
    Event(Option<Event>),
}

impl From<Admittance> for Dispatch {
    fn from(admittance: Admittance) -> Self {
        match admittance {
            Admittance::Now(permits) => Self::Ready(permits),
            Admittance::Queued(leg) => Self::Queued(leg),
        }
    }
}

impl Dispatch {
    /// A leg that is open already, and that no limit counts in this carrier.
    pub(super) fn under_way(exchange: Exchange, origin: LegOrigin) -> Self {
        Self::Open(OpenLeg {
            exchange,
            permits: HeldPermits::default(),
            origin,
        })
    }

    /// The next event of the leg. It never resolves if the leg waits for nothing.
    ///
    /// Cancel safe: neither the position in the queue nor an event is lost.
    pub(super) async fn next(&mut self) -> Arrival {
        match self {
            // Boxed, because a leg that is open would keep room for it.
            Self::Queued(leg) => Arrival::Permits(Box::pin(leg.admitted()).await),
            Self::Open(leg) => Arrival::Event(leg.exchange.events.next().await),
            Self::Requeues | Self::Ready(_) | Self::Over => std::future::pending().await,
        }
    }

    /// Opens the leg, if it may go out.
    pub(super) fn open(&mut self, exchange: impl FnOnce(Option<Seat>) -> Exchange) {
        if let Self::Ready(permits) = self {
            let (seat, permits) = std::mem::take(permits).take_place();
            *self = Self::Open(OpenLeg {
                exchange: exchange(seat),
                permits,
                origin: LegOrigin::Sent,
            });
        }
    }

    /// Goes on with the server's own task in place of the exchange that named it.
    pub(super) fn follow(&mut self, exchange: Exchange) {
        if let Self::Open(leg) = self {
            // Only the exchange is replaced: the server works on the call, so the leg keeps its permits.
            leg.exchange = exchange;
            leg.origin = LegOrigin::Followed;
        }
    }

    /// The leg has ended at the server. Its permits stay, for the next leg.
    pub(super) fn end_leg(&mut self) {
        if let Self::Open(leg) = self {
            *self = Self::Ready(std::mem::take(&mut leg.permits).into());
        }
    }

    /// The permits of a leg that this carrier sent and that came to nothing.
    pub(super) fn take_permits(&mut self) -> Permits {
        self.end_leg();
        match self.take() {
            Self::Ready(permits) => permits,
            Self::Queued(_) | Self::Requeues | Self::Open(_) | Self::Over => Permits::default(),
        }
    }

    /// Ends the dispatch, and returns it to the caller.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Over)
    }

    pub(super) fn exchange(&self) -> Option<&Exchange> {
        match self {
            Self::Open(leg) => Some(&leg.exchange),
            Self::Queued(_) | Self::Requeues | Self::Ready(_) | Self::Over => None,
        }
    }

    pub(super) fn origin(&self) -> Option<LegOrigin> {
        match self {
            Self::Open(leg) => Some(leg.origin),
            Self::Queued(_) | Self::Requeues | Self::Ready(_) | Self::Over => None,
        }
    }

    /// Returns `true` if the leg does not go out now.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Queued(_) | Self::Requeues => true,
            Self::Ready(_) | Self::Open(_) | Self::Over => false,
        }
    }

    /// Returns the message that a client may receive about a leg that waits.
    pub(super) fn queue_message(&self) -> Option<Box<str>> {
        match self {
            Self::Queued(leg) => Some(leg.message()),
            Self::Requeues => Some(queue_message(0)),
            Self::Ready(_) | Self::Open(_) | Self::Over => None,
        }
    }
}
