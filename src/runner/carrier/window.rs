//! The grace window of a call: at its end the call becomes a task, or a ticket.

use tokio::time::Instant;
use tracing::warn;

use super::super::waiting::{ANNOUNCE_AGAIN, CallState, CallView, Hears, TaskWhen};
use super::{CallStage, Carrier, Flow, RecordTerms, Timer};
use crate::task::state::Leg;

impl Carrier {
    /// The server has the request: the grace window of a call that asks before its task starts now.
    pub(super) fn on_sent(&mut self) -> Flow {
        if let CallStage::Plain(_) = self.stage
            && let Some(client) = self.audience.client()
            && let Some(TaskWhen::AfterSent { grace, .. }) = client.terms.when
        {
            self.timers.arm(Timer::GraceWindow, Instant::now() + grace);
        }
        Flow::Continue
    }

    /// The grace window is over: from here on the call is a task.
    pub(super) async fn on_window(&mut self) -> Flow {
        if let Some(at) = self.timers.at(Timer::Gather) {
            // Questions that were just asked make the record, unless no record can hold them.
            self.timers.arm(Timer::GraceWindow, at);
            return Flow::Continue;
        }
        let CallStage::Plain(plain) = &self.stage else {
            return Flow::Continue;
        };
        if plain.window_failed && !*self.runner.store_answers.borrow() {
            // The store is known to be away, and an attempt would delay the server's events.
            self.window_again();
            return Flow::Continue;
        }
        // This comes before the record: a question whose answer went through another replica must not be asked again in
        // the task.
        self.forget_passed().await;
        // A question that was relayed and not answered yet is asked in the task from here on.
        let events = self.record_questions().await;
        let Err(why) = self.record(events, RecordTerms::of_call(true)).await else {
            return self.on_recorded().await;
        };
        // The call runs already: its client waits on this connection.
        if let CallStage::Plain(plain) = &mut self.stage
            && !std::mem::replace(&mut plain.window_failed, true)
        {
            warn!(error = %why, "a call could not become a task yet; its client waits on its connection");
        }
        self.window_again();
        Flow::Continue
    }

    /// Goes on with a call that has just got its record.
    pub(super) async fn on_recorded(&mut self) -> Flow {
        let recorded = self.stage.recorded();
        let is_parked = recorded.is_some_and(|it| matches!(it.leg, Leg::Parked(_)));
        // The next leg belongs to the replica that takes the last answer.
        if is_parked {
            self.on_round_in_task().await
        } else {
            Flow::Continue
        }
    }

    /// Returns `true` if the client is notified of a task now that the call asks, and not of the questions alone.
    pub(super) fn asks_in_task(&self) -> bool {
        let asks = CallView {
            state: CallState::Asks,
            is_announced: false,
            is_time: false,
        };
        let client = self.audience.client();
        client.is_some_and(|client| client.hears(asks) == Hears::Task)
    }

    fn window_again(&mut self) {
        let at = Instant::now() + ANNOUNCE_AGAIN;
        self.timers.arm(Timer::GraceWindow, at);
    }
}
