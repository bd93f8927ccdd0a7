//! A leg in a queue: for its limits, for its place at the server, or for the end of a pause.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::task::coop::unconstrained;

use super::limiter::{Limiter, QueuePosition, QueueSlot};
use super::pausing::{LegLimits, Pausing};
use super::permits::Permits;
use super::queue_message::queue_message;
use super::seat::{SeatTurn, SeatWanted};
use crate::telemetry::counted::Counted;
use crate::upstream::{Event, SeatWait};

/// A leg in a queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(in crate::runner) struct QueuedLeg {
    turn: LegTurn,
    /// `None`: the call was sent before, and a pause is for calls that were not.
    pub(super) pausing: Option<Pausing>,
    /// `None` until it is certain that the leg waits.
    _waiting: Option<Counted>,
}

/// How far a leg is on its way to the server.
#[derive(Debug)]
struct LegTurn {
    /// The limits that the leg has not passed. It is in the queue of the first one.
    ahead: VecDeque<LimitAhead>,
    passed: Permits,
    seat: SeatTurn,
}

#[derive(Debug)]
struct LimitAhead {
    limiter: Arc<Limiter>,
    position: Option<QueuePosition>,
    /// Keeps the queue within its bound. `None` for a call that was admitted before.
    slot: Option<QueueSlot>,
}

impl QueuedLeg {
    /// A leg that stands in no queue yet.
    pub(super) fn new(limits: &LegLimits) -> Self {
        Self {
            turn: LegTurn {
                ahead: ahead(limits),
                passed: Permits::default(),
                seat: SeatTurn::Anywhere,
            },
            pausing: None,
            _waiting: None,
        }
    }

    /// A leg that has passed its limits, and waits for its place at the server.
    pub(super) fn behind_limits(
        passed: Permits,
        wait: Box<SeatWait>,
        wanted: Box<SeatWanted>,
        pausing: Option<Pausing>,
    ) -> Box<Self> {
        let leg = Self {
            turn: LegTurn {
                ahead: VecDeque::new(),
                passed,
                seat: SeatTurn::Waits(wait, wanted),
            },
            pausing,
            _waiting: None,
        };
        leg.counted()
    }

    /// Takes the position in the queue, or finds that there is no queue.
    pub(super) fn line_up(mut self) -> Result<Permits, Box<Self>> {
        // Unconstrained, because the runtime's budget for this task could make a free permit look taken.
        match unconstrained(self.turn.within_limits()).now_or_never() {
            Some(()) => Ok(self.turn.passed),
            None => Err(self.counted()),
        }
    }

    /// Keeps this room in the first queue.
    pub(super) fn keep_room(&mut self, slot: QueueSlot) {
        if let Some(first) = self.turn.ahead.front_mut() {
            first.slot = Some(slot);
        }
    }

    /// Asks for this place at the server, after the limits.
    pub(super) fn want(&mut self, seat: Box<SeatWanted>) {
        self.turn.seat = SeatTurn::Wanted(seat);
    }

    pub(super) fn counted(self) -> Box<Self> {
        Box::new(Self {
            _waiting: Some(Counted::waiting_call()),
            ..self
        })
    }

    /// Resolves when the leg has passed all limits and has its place at the server, and its tool is not paused. `Err`: it gets none,
    /// and this is the end of the call.
    ///
    /// Cancel safe: passed limits stay passed, and the position in the queue stays.
    pub(in crate::runner) async fn admitted(&mut self) -> Result<Permits, Event> {
        let Self { turn, pausing, .. } = self;
        let Some(pausing) = pausing else {
            return turn.come().await;
        };
        loop {
            if pausing.current().is_some() {
                // The places go to tools that are not paused.
                turn.begin_anew(pausing);
                pausing.over().await;
            }
            tokio::select! {
                biased;
                () = pausing.begun() => {}
                come = turn.come() => return come,
            }
        }
    }

    /// Takes room in every queue that the leg may come to: a call must not be refused half-way. `None`: a queue is
    /// full.
    pub(super) fn take_slots(&mut self) -> Option<()> {
        for ahead in &mut self.turn.ahead {
            ahead.slot = Some(ahead.limiter.slot()?);
        }
        Some(())
    }

    /// Returns the message that a client may receive about the call.
    pub(in crate::runner) fn message(&self) -> Box<str> {
        if let Some(pause) = self.pausing.as_ref().and_then(Pausing::current) {
            return format!("The tool is paused {}", pause.terms()).into();
        }
        let Some(ahead) = self.turn.ahead.front() else {
            return self.turn.seat.message();
        };
        queue_message(ahead.position.as_ref().map_or(0, QueuePosition::ahead))
    }
}

impl LegTurn {
    /// Resolves when the leg has passed all limits and has its place at the server.
    ///
    /// Cancel safe.
    async fn come(&mut self) -> Result<Permits, Event> {
        self.within_limits().await;
        // The permits stay in `passed` until the seat is there, so that a poll that is cancelled here loses none of
        // them.
        self.passed.seat = self.seat.seat().await?;
        Ok(std::mem::take(&mut self.passed))
    }

    async fn within_limits(&mut self) {
        while let Some(ahead) = self.ahead.front_mut() {
            let line_up = || ahead.limiter.line_up();
            // The position outlives this future, so that a poll which is cancelled does not join the queue at its end
            // again.
            let position = ahead.position.get_or_insert_with(line_up);
            let permit = position.permit().await;
            self.passed.limits.push(permit);
            // This also returns the slot: from here on the leg takes no room in this queue.
            self.ahead.pop_front();
        }
    }

    /// Gives back what the leg has, but for its room in the queue of its rule.
    fn begin_anew(&mut self, pausing: &Pausing) {
        let limits = &pausing.limits;
        let is_first = self.ahead.len() == limits.in_order.len();
        let first = self.ahead.pop_front();
        let first = first.filter(|_| is_first && limits.has_own);
        self.ahead = ahead(limits);
        if let (Some(kept), Some(first)) = (first, self.ahead.front_mut()) {
            first.slot = kept.slot;
        }
        self.passed = Permits::default();
        self.seat.begin_anew();
    }
}

fn ahead(limits: &LegLimits) -> VecDeque<LimitAhead> {
    let limiters = limits.in_order.iter().cloned();
    limiters.map(LimitAhead::new).collect()
}

impl LimitAhead {
    fn new(limiter: Arc<Limiter>) -> Self {
        Self {
            limiter,
            position: None,
            slot: None,
        }
    }
}
