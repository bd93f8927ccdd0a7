//! The time that a client waits for its call, and the way the call is carried until then.

use std::time::Duration;

use tokio::time::Instant;

use crate::runner::Announce;
use crate::task::clients::ClientTerms;
use crate::task::plan::{Plan, with_companion};
use crate::task::policy::{InputWhen, Rule};

/// The time until which a client waits for its call, and the form in which it is notified then.
#[derive(Debug)]
pub(super) struct CallPatience {
    pub(super) until: Instant,
    pub(super) announce: Announce,
}

impl CallPatience {
    /// The client's patience from now on. `None`: the client waits however long the call takes.
    pub(super) fn of(rule: &Rule, client: ClientTerms, announce: Announce) -> Option<Self> {
        // Questions are put to the client while it waits.
        let Plan::Auto { window_ms, .. } = with_companion(rule, client, InputWhen::BeforeTask)
        else {
            return None;
        };
        Some(Self {
            until: Instant::now() + Duration::from_millis(window_ms),
            announce,
        })
    }

    /// Returns the plan by which the next leg of the call is carried.
    pub(super) fn plan(&self) -> Plan {
        let left = self.until.saturating_duration_since(Instant::now());
        Plan::Auto {
            window_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            input: InputWhen::BeforeTask,
        }
    }
}
