//! The grace window of a call: at its end the call becomes a task, or a ticket.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::call::grace;
use super::{CallStage, Carrier, Flow, RecordTerms, Timer};
use crate::task::policy::{InputWhen, Plan};

/// The pause before the next attempt to make a task that the store did not take at the end of the grace
/// window.
const WINDOW_AGAIN: Duration = Duration::from_secs(1);

impl Carrier {
    /// The server has the request: the grace window of a call that asks before its task starts now.
    pub(super) fn on_sent(&mut self) -> Flow {
        let asks_before = Plan::Always {
            input: InputWhen::BeforeTask,
        };
        if matches!(&self.stage, CallStage::Plain(plain) if plain.client.plan == asks_before) {
            let at = Instant::now() + grace(&self.server.rule);
            self.timers.arm(Timer::GraceWindow, at);
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
        self.forget_passed().await;
        // A question that was relayed and not answered yet is asked in the task from here on.
        let events = self.record_questions().await;
        let Err(why) = self.record(events, RecordTerms::of_call(true)).await else {
            return Flow::Continue;
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

    fn window_again(&mut self) {
        let at = Instant::now() + WINDOW_AGAIN;
        self.timers.arm(Timer::GraceWindow, at);
    }
}
