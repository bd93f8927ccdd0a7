//! The permits of a leg: what it holds so that it may be at the server.

use super::limiter::Permit;
use crate::upstream::Seat;

/// The permits of a leg that may go to the server. Dropping them admits other legs. Empty if nothing is limited.
#[derive(Debug, Default)]
pub(in crate::runner) struct Permits {
    pub(super) limits: Vec<Permit>,
    /// The place of the leg. `None`: the server finds one when the leg is sent.
    pub(super) seat: Option<Seat>,
}

/// The permits of a leg that is at the server. Dropping them admits other legs.
#[derive(Debug, Default)]
pub(in crate::runner) struct HeldPermits(Vec<Permit>);

impl Permits {
    /// Returns the place for the request that is sent now, and what the leg holds while it is at the server.
    pub(in crate::runner) fn take_place(self) -> (Option<Seat>, HeldPermits) {
        (self.seat, HeldPermits(self.limits))
    }
}

impl From<HeldPermits> for Permits {
    /// For the next leg of the call.
    fn from(HeldPermits(limits): HeldPermits) -> Self {
        Self { limits, seat: None }
    }
}
