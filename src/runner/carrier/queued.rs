//! A call that waits for its turn: nothing of it is at the server, and its record says so.

use std::time::Duration;

use tokio::time::Instant;

use super::super::seat::Seat;
use super::super::turn::{Places, Turn};
use super::{Carrier, Flow};
use crate::store::ledger::NotApplied;
use crate::task::machine::{OwnerEvent, Rejected};
use crate::task::state::Leg;

/// A store that did not take that a leg goes out is asked again after so long.
const TURN_AGAIN: Duration = Duration::from_secs(1);

impl Carrier {
    /// The record says `sent` before the first byte goes out.
    pub(super) async fn on_turn(&mut self, places: Places) -> Flow {
        self.turn = Turn::Has(places);
        self.look_ahead = None;
        self.progress.newest = None;
        if self.kept.is_none() {
            self.open();
            return Flow::Continue;
        }
        let leg = self.kept.as_ref().map(|kept| kept.leg);
        // A run of before came to nothing, where the leg was sent already.
        let is_again = matches!(leg, Some(Leg::Sent(_)));
        let goes_out = if is_again {
            OwnerEvent::Repeated
        } else {
            OwnerEvent::Dispatched
        };
        match self.apply(goes_out).await {
            Ok(_) if is_again => self.next_leg(),
            Ok(_) => {
                self.open();
                Flow::Continue
            }
            // A commit of before whose answer was lost: nobody but this carrier sends the leg.
            Err(NotApplied::Rejected(Rejected::Unchanged, stands)) => {
                if let Some(kept) = &mut self.kept {
                    kept.leg = stands.task.leg;
                    kept.loaded = *stands;
                }
                self.open();
                Flow::Continue
            }
            Err(NotApplied::Rejected(_, stands)) => self.see(*stands).await,
            Err(NotApplied::Gone) => self.lost().await,
            // Others need no store: they have the places until it is back.
            Err(NotApplied::Store(_)) => {
                self.turn = Turn::Again(Instant::now() + TURN_AGAIN);
                Flow::Continue
            }
        }
    }

    /// Tells pollers how long the queue is, as often as they are to poll.
    pub(super) fn on_look_ahead(&mut self) -> Flow {
        self.look_ahead = None;
        let (Some(message), Some(kept)) = (self.turn.message(), &self.kept) else {
            return Flow::Continue;
        };
        let task = &kept.loaded.task;
        if task.status_message.as_deref() != Some(&*message) {
            self.progress.newest = Some((Some(message), None));
        }
        self.look_ahead_later();
        Flow::Continue
    }

    pub(super) fn look_ahead_later(&mut self) {
        let Some(kept) = self.kept.as_ref().filter(|_| self.turn.waits()) else {
            return;
        };
        let task = &kept.loaded.task;
        let age_ms = (self.runner.ledger.now_ms()).saturating_sub(task.created_ms);
        let pause = self.call.rule.poll_interval_at(age_ms);
        self.look_ahead = Some(Instant::now() + Duration::from_millis(pause));
    }

    /// Whether another replica can send the call in this one's place: its client knows of it, and
    /// nothing that it needs is known here only.
    pub(super) fn may_hand_over(&self) -> bool {
        let Some(kept) = &self.kept else { return false };
        let task = &kept.loaded.task;
        task.leg == Leg::Queued
            && task.is_wanted()
            && self.seat.as_ref().is_none_or(Seat::was_told)
            && self.call.outgoing.is_anybodys()
            && !self.runner.settings.exclusive_store
    }

    /// Nothing of the call is at the server any more, and nothing will be: its place is free.
    pub(super) fn end_turn(&mut self) {
        self.turn = Turn::Over;
        self.look_ahead = None;
    }
}
