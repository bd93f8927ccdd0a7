//! The grace window of a call: at its end the call becomes a task, or a ticket.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::call::grace;
use super::{Carrier, Flow};
use crate::task::policy::{InputWhen, Plan};

/// A task that the store did not take at the end of its window is made after so long, as soon as the
/// store answers.
const WINDOW_AGAIN: Duration = Duration::from_secs(1);

impl Carrier {
    /// A call that asks before its task has its grace window from here on.
    pub(super) fn on_sent(&mut self) -> Flow {
        let asks_before = Plan::Always {
            input: InputWhen::BeforeTask,
        };
        if self.window.is_some() && self.call.plan == asks_before {
            self.window = Some(Instant::now() + grace(&self.call));
        }
        Flow::Continue
    }

    /// The grace window is over: from here on it is a task.
    pub(super) async fn on_window(&mut self) -> Flow {
        // Questions that were just asked make the record, unless none of them can be kept.
        self.window = self.gather;
        if self.kept.is_some() || self.gather.is_some() {
            return Flow::Continue;
        }
        if self.window_failed && !*self.runner.store_answers.borrow() {
            // What the server says would wait for a store that is known to be away.
            self.window = Some(Instant::now() + WINDOW_AGAIN);
            return Flow::Continue;
        }
        self.forget_passed().await;
        // Relayed and not answered yet: asked in the task from here on.
        let events = self.events_of_asked().await;
        match self.keep(events, true).await {
            Ok(()) => {
                self.asked.clear();
                self.announce().await;
            }
            // The call stays held on this connection: it runs already.
            Err(why) => {
                if !std::mem::replace(&mut self.window_failed, true) {
                    warn!(error = %why, "a call could not become a task yet and stays held");
                }
                self.window = Some(Instant::now() + WINDOW_AGAIN);
            }
        }
        Flow::Continue
    }
}
