//! The receivers that must be notified of the states of a task (`[[notify]]`, and the subscriptions of its caller).
//! The record of the task names them, so that one commit both ends the task and names the receivers to notify of the
//! end. Pure.
//!
//! Each receiver has its own queue. A replica that notifies a receiver claims the queue for a short time. If the
//! replica dies, the claim runs out, and the due index leads another replica to the record.

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::id::TaskId;
use crate::base::backoff;

/// Upper bound of the time for one attempt.
pub const ATTEMPT_MS: u64 = 10_000;

/// The time that a claim lasts: one attempt, and the commits around it.
const CLAIM_MS: u64 = 15_000;

/// The pause after the first failure. It doubles with each further failure.
const PAUSE_MS: u64 = 2_000;
const PAUSE_MAX_MS: u64 = 120_000;

/// The least time for which a notice is left alone if this replica has no room for it, or has no such receiver. The
/// time is a quarter of the notice's age, and not less than this.
const POSTPONED_MIN_MS: u64 = 30_000;

/// The first two bytes of the names of subscriptions. A mark in the name survives a replica of an earlier version, which drops
/// each field of a record that it does not know.
const SUBSCRIPTION: u64 = 0x4d43 << 48;
const MARK: u64 = 0xffff << 48;

/// Names a receiver in records: a digest of its address, which may be secret, or of the subscription of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReceiverId(u64);

impl ReceiverId {
    pub fn of(url: &str) -> Self {
        let id = half_of(&Digest::of(&["notify", url]));
        // One name in 65,536 would look like that of a subscription.
        let looks_else = id & MARK == SUBSCRIPTION;
        Self(if looks_else { id ^ MARK } else { id })
    }

    /// The receiver of the subscription with this id.
    pub fn of_subscription(id: &str) -> Self {
        let id = half_of(&Digest::of(&["subscription", id]));
        Self(id & !MARK | SUBSCRIPTION)
    }

    /// Returns `true` if a client subscribed the receiver, and no operator configured it.
    pub fn is_subscription(self) -> bool {
        self.0 & MARK == SUBSCRIPTION
    }
}

fn half_of(digest: &Digest) -> u64 {
    let half = digest.as_bytes().first_chunk();
    u64::from_le_bytes(half.copied().unwrap_or_default())
}

/// A state that receivers may be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeState {
    Completed,
    Failed,
    Cancelled,
    InputRequired,
}

impl NoticeState {
    pub const ALL: [Self; 4] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::InputRequired,
    ];

    /// The word of the protocol, which is the word in the configuration, too.
    pub fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::InputRequired => "input_required",
        }
    }
}

/// The notices of one task for one receiver. The terms are fixed at creation, so that every replica decides alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notices {
    pub receiver: ReceiverId,
    /// The states that the receiver is notified of.
    pub states: Vec<NoticeState>,
    /// The time that a notice is tried again.
    pub retry_ms: u64,
    /// The notices of the task so far.
    #[serde(default)]
    made: u32,
    /// The notices that the receiver must still get, the oldest first. At most three: see [`Self::push`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<Notice>,
    /// The number of failed attempts for the first of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    failures: u32,
    /// The first of them is claimed until then, or waits until then for its next attempt.
    #[serde(default)]
    look_ms: u64,
    /// `true` if the last of them was not sent: the subscription had ended, or the notice was given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unheard: bool,
}

/// One notice that a receiver must get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Counts the notices of one receiver and one task, from 1.
    pub number: u32,
    pub state: NoticeState,
    /// When the task came into the state.
    pub at_ms: u64,
    /// `true` if the receiver was notified of the question before, and the question waited for long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reminder: bool,
}

/// An event of the first notice of a receiver.
#[derive(Debug, Clone, Copy)]
pub enum NoticeEvent {
    /// A replica tries now. A notice whose time is over is given up instead.
    Claimed,
    /// The receiver has it, or will never take it.
    Settled { number: u32 },
    /// The subscription has ended, or its receiver is gone: the notice was not sent.
    Unheard { number: u32 },
    /// An attempt failed. `pause_ms`: the receiver asked for this pause. `random` spreads the attempts.
    Failed {
        number: u32,
        pause_ms: Option<u64>,
        random: u8,
    },
    /// The replica that found it cannot try.
    Postponed { number: u32 },
}

impl Notice {
    /// Returns `true` if the notice is for the end of its task.
    pub fn is_end(&self) -> bool {
        self.state != NoticeState::InputRequired
    }
}

impl Notices {
    pub fn new(receiver: ReceiverId, states: Vec<NoticeState>, retry_ms: u64) -> Self {
        Self {
            receiver,
            states,
            retry_ms,
            made: 0,
            waiting: Vec::new(),
            failures: 0,
            look_ms: 0,
            unheard: false,
        }
    }

    /// Returns `true` if the receiver has no notice of the present state, and no notice waits for it: it may get one
    /// now.
    pub fn may_replay(&self) -> bool {
        self.waiting.is_empty() && (self.unheard || self.made == 0)
    }

    /// Returns the notice that the receiver must get next.
    pub fn first(&self) -> Option<&Notice> {
        self.waiting.first()
    }

    /// When a replica must look at the first notice.
    pub fn look_ms(&self) -> Option<u64> {
        self.first().map(|_| self.look_ms)
    }

    /// Returns `true` if any replica may claim the first notice.
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.look_ms().is_some_and(|look_ms| look_ms <= now_ms)
    }

    /// Returns `true` if a claim of the first notice leaves time for one attempt.
    pub fn may_attempt(&self, now_ms: u64) -> bool {
        self.look_ms()
            .is_some_and(|look_ms| is_in_time(look_ms, now_ms))
    }

    /// Adds a notice. A question whose notice waits stands for the questions after it, so that a receiver that is
    /// away leaves at most three notices: one that is tried, a question, and the end.
    pub(super) fn push(&mut self, state: NoticeState, is_reminder: bool, at_ms: u64) {
        if !self.states.contains(&state) {
            return;
        }
        let notice = Notice {
            number: self.made + 1,
            state,
            at_ms,
            is_reminder,
        };
        // The first notice may be on its way, so it stays as it is, and its id with it.
        if self.waiting.len() > 1
            && let Some(last) = self.waiting.last_mut()
            && last.state == NoticeState::InputRequired
            && state == NoticeState::InputRequired
        {
            last.at_ms = at_ms;
            // The merged message tells of a new question, so it is not a reminder, even if it replaces one.
            last.is_reminder &= is_reminder;
            return;
        }
        self.made += 1;
        if self.waiting.is_empty() {
            self.begin(at_ms);
        }
        self.waiting.push(notice);
    }

    /// The replica that commits this tries the first notice at once.
    fn begin(&mut self, now_ms: u64) {
        self.failures = 0;
        self.look_ms = now_ms.saturating_add(CLAIM_MS);
    }

    fn settle(&mut self, now_ms: u64) {
        self.waiting.remove(0);
        self.begin(now_ms);
    }

    /// Settles the first notice untold. Any replica may look at the next one at once.
    fn give_up(&mut self, now_ms: u64) {
        self.settle(now_ms);
        self.unheard = true;
        // No replica is about to try the next notice, so any replica may claim it.
        self.look_ms = now_ms;
    }

    /// Applies the event; false: it changes nothing. `life_ms`: until when the record is there.
    pub(super) fn step(&mut self, event: NoticeEvent, life_ms: u64, now_ms: u64) -> bool {
        let Some(first) = self.first() else {
            return false;
        };
        let age_ms = now_ms.saturating_sub(first.at_ms);
        let last_ms = first.at_ms.saturating_add(self.retry_ms).min(life_ms);
        let number = first.number;
        match event {
            // Another replica has claimed it, or the pause after a failure is not over.
            NoticeEvent::Claimed if self.look_ms > now_ms => return false,
            // A replica that died with a claim leaves the last attempt to another.
            NoticeEvent::Claimed if now_ms > last_ms.saturating_add(CLAIM_MS) => {
                self.give_up(now_ms);
            }
            NoticeEvent::Claimed => self.look_ms = now_ms.saturating_add(CLAIM_MS),
            NoticeEvent::Settled { number: n }
            | NoticeEvent::Unheard { number: n }
            | NoticeEvent::Failed { number: n, .. }
            | NoticeEvent::Postponed { number: n }
                if n != number =>
            {
                // The claim of that attempt ran out, and the notice was settled since.
                return false;
            }
            NoticeEvent::Settled { .. } => {
                self.settle(now_ms);
                self.unheard = false;
            }
            NoticeEvent::Unheard { .. } => {
                self.settle(now_ms);
                self.unheard = true;
            }
            NoticeEvent::Failed {
                pause_ms, random, ..
            } => {
                self.failures = self.failures.saturating_add(1);
                let asked_ms = pause_ms.unwrap_or_default();
                // A receiver that asks for a longer pause than is left still gets an attempt at the end.
                let asked_ms = asked_ms.min(last_ms.saturating_sub(now_ms));
                let next_ms = now_ms.saturating_add(pause(self.failures, random).max(asked_ms));
                if next_ms > last_ms {
                    self.settle(now_ms);
                    self.unheard = true;
                } else {
                    self.look_ms = next_ms;
                }
            }
            NoticeEvent::Postponed { .. } if now_ms >= last_ms => self.give_up(now_ms),
            NoticeEvent::Postponed { .. } => {
                let pause_ms = POSTPONED_MIN_MS.max(age_ms / 4);
                self.look_ms = now_ms.saturating_add(pause_ms).min(last_ms);
            }
        }
        true
    }
}

/// Returns `true` if a claim until then leaves time for one attempt.
pub fn is_in_time(look_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_add(ATTEMPT_MS) <= look_ms
}

/// The pause after so many failures: from three quarters of the usual pause to five quarters.
fn pause(failures: u32, random: u8) -> u64 {
    let usual_ms = backoff::after_ms(failures, PAUSE_MS, PAUSE_MAX_MS);
    usual_ms * 3 / 4 + usual_ms / 2 * u64::from(random) / u64::from(u8::MAX)
}

/// The id of a notice: the same for each attempt, and of no use to a client who learns it. A store that lost a commit gives
/// its number again; the state and its time keep the messages apart. Neither changes once the notice is the first.
pub fn message_id(task: TaskId, receiver: ReceiverId, notice: &Notice) -> String {
    let (task, receiver) = (task.to_string(), receiver.0.to_string());
    let (number, at_ms) = (notice.number.to_string(), notice.at_ms.to_string());
    let state = notice.state.word();
    let parts = ["notice", &task, &receiver, &number, state, &at_ms];
    let number = u128::from_be_bytes(*Digest::of(&parts).as_bytes());
    format!("msg_{number:032x}")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
