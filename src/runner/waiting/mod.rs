//! A CLIENT THAT WAITS for its call on its own connection: what it receives, when, and in which form.
//!
//! There are two sources of what a client receives. For a call without a record, the only source is its carrier,
//! which notifies the client itself (`carrier`). A call with a record is followed through the record, on any replica
//! (`follower`). The rules are the same for both, and they are here.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::call::Announce;
use super::client_note::Leaving;
use super::report;
use super::request_state::input_required;
use super::responder::{self, CallAnswer, CallSubscriber, Responder};
use super::state::Runner;
use crate::mcp::envelope;
use crate::mcp::json::set;
use crate::mcp::version::Era;
use crate::task::clocks::{ClockName, RungClock};
use crate::task::gave_up::is_time_of_clock;
use crate::task::state::Task;
use crate::task::still_running;
use crate::telemetry::calls::Fate;
use crate::upstream::UpstreamError;

mod rule;
mod terms;

pub(super) use rule::{CallState, CallView, Hears};
pub(super) use terms::{TaskWhen, WaitTerms};

/// The pause before the next attempt to notify the client of a task, after the store did not take the last attempt:
/// the call runs already, and its client waits on its connection.
pub(super) const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);

/// A client that waits for its call.
#[derive(Debug)]
pub(super) struct WaitingClient {
    pub(super) responder: Responder,
    pub(super) terms: WaitTerms,
    /// When this client began to wait.
    began: Instant,
    /// The client joined a call, or came back to it.
    has_joined: bool,
}

/// The answer that ends a client's wait.
#[derive(Debug)]
pub(super) struct Heard {
    answer: CallAnswer,
    /// `Fate::Plain`: how the call ended.
    fate: Fate,
}

impl Heard {
    /// Returns `true` for the answer of [`still_running`].
    pub(super) fn is_still_running(&self) -> bool {
        self.fate == Fate::StillRunning
    }
}

impl From<CallAnswer> for Heard {
    fn from(answer: CallAnswer) -> Self {
        let fate = Fate::Plain;
        Self { answer, fate }
    }
}

impl WaitingClient {
    /// The client that made the call.
    pub(super) fn of_call(terms: WaitTerms) -> (Self, CallSubscriber) {
        Self::new(terms, false)
    }

    /// A client that joined a call, or came back to it.
    pub(super) fn joined(terms: WaitTerms) -> (Self, CallSubscriber) {
        Self::new(terms, true)
    }

    fn new(terms: WaitTerms, has_joined: bool) -> (Self, CallSubscriber) {
        let (responder, subscriber) = responder::pair(terms.note.clone().unwrap_or_default());
        let client = Self {
            responder,
            terms,
            began: Instant::now(),
            has_joined,
        };
        (client, subscriber)
    }

    /// Returns `true` if the client neither joined the call nor came back to it.
    pub(super) fn made_the_call(&self) -> bool {
        !self.has_joined
    }

    /// Returns the time at which the client is notified of a task.
    pub(super) fn announce_at(&self) -> Option<Instant> {
        let when = self.terms.when?;
        Some(self.began + when.latest())
    }

    /// Returns `true` if the client, which went away before it had its answer, shows that its clock ended. A legacy client
    /// that only closes its connection may come back.
    pub(super) fn gave_up(&self) -> bool {
        match (self.responder.note().leaving(), self.terms.era) {
            (Leaving::GaveUp, _) | (Leaving::Disconnected, Era::Legacy) => true,
            (Leaving::Cancelled, _) => false,
            (Leaving::Disconnected, Era::Modern) => {
                is_time_of_clock(Instant::now().saturating_duration_since(self.began))
            }
        }
    }

    /// Returns the clock that made the client give up, by this name. `None`: the client cancelled the call, it is sent progress,
    /// which starts many clocks anew, or it cannot be told from others.
    pub(super) fn rung_clock(&self, name: Option<ClockName>) -> Option<RungClock> {
        let is_clock = match (self.responder.note().leaving(), self.terms.era) {
            (Leaving::GaveUp, _) => true,
            (Leaving::Disconnected, Era::Modern) => self.gave_up(),
            (Leaving::Disconnected, Era::Legacy) | (Leaving::Cancelled, _) => false,
        };
        let name = name.filter(|_| is_clock && self.terms.progress_token.is_none())?;
        let waited = Instant::now().saturating_duration_since(self.began);
        Some(RungClock { name, waited })
    }

    /// Returns the kind of answer that the client receives, given the known state of its call.
    pub(super) fn hears(&self, view: CallView) -> Hears {
        rule::hears(&self.terms, view)
    }

    /// Returns the answer that announces the task.
    pub(super) fn task(&self, task: &Task, runner: &Runner) -> Heard {
        let (json, fate) = match &self.terms.announce {
            Announce::Task => (runner.tell_of(task), Fate::Task),
            Announce::Ticket(ticket) => {
                let now_ms = runner.ledger.now_ms();
                (ticket.issued(task, now_ms), Fate::Ticket)
            }
        };
        let answer = CallAnswer::result(json);
        Heard { answer, fate }
    }

    /// Gives the answer, and reports to operators what the client got.
    pub(super) fn answer(&self, tool: Option<&str>, heard: impl Into<Heard>) {
        let Heard { answer, fate } = heard.into();
        let has_joined = self.has_joined && fate != Fate::StillRunning;
        let fate = if has_joined { Fate::Joined } else { fate };
        if fate == Fate::Plain {
            report::answered(tool, &answer, self.began);
        } else {
            report::became(tool, fate);
        }
        self.responder.answer(answer);
    }

    /// Sends progress to the client, under the client's own token. A slow client delays the call, but not past
    /// `until`.
    pub(super) async fn tell_progress(&self, params: &str, until: Option<Instant>) {
        // Progress may only name a token that the client gave in its request.
        if let Some(token) = &self.terms.progress_token
            && let Ok(params) = set(params, "progressToken", token.get())
        {
            self.tell("notifications/progress", &params, until).await;
        }
    }

    /// Relays a notification. A slow client delays the call, but not past `until`.
    pub(super) async fn tell(&self, method: &str, params: &str, until: Option<Instant>) {
        let notification = envelope::notification(method, params);
        self.responder.tell(notification, until).await;
    }

    /// Returns `true` if a task serves the client better than this result as an event on its stream.
    pub(super) fn prefers_task_to(&self, result: &RawValue) -> bool {
        self.responder.streams() && self.terms.announce.is_better_than(result)
    }
}

/// The answer that asks the open questions. The client comes back with its answers in another request.
pub(super) fn question(task: &Task) -> Heard {
    let (answer, fate) = (CallAnswer::result(input_required(task)), Fate::Question);
    Heard { answer, fate }
}

/// The answer to a client whose clock is about to end: its call runs on, and the same call collects it.
pub(super) fn still_running(task: &Task) -> Heard {
    let error = still_running::error(task).to_raw();
    let answer = CallAnswer::Error(UpstreamError::in_message(error));
    let fate = Fate::StillRunning;
    Heard { answer, fate }
}
