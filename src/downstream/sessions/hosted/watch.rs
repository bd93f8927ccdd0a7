//! Waits until a session changes or ends, at this replica or another.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::session::Session;
use crate::downstream::proxy::Proxy;
use crate::runner::value_watch::ValueWatch;
use crate::store::StoreError;

/// The longest wait before the session is read again although there was no notification: the replica that changed it
/// may have died before it sent the notification.
const LOOK: Duration = Duration::from_mins(1);

/// Values expire by the store's clock, which differs a little from this process's clock.
const SLACK: Duration = Duration::from_millis(250);

/// The pause before a store that is away is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// A watch over one session.
#[derive(Debug)]
pub(super) struct SessionWatch {
    value: ValueWatch,
    look_at: Instant,
}

impl SessionWatch {
    /// A change after this returns is seen.
    pub(super) fn of(proxy: &Arc<Proxy>, session: &Session) -> Self {
        let value = proxy.runner.watch_value(session.name);
        Self {
            value,
            look_at: look_at(proxy, session),
        }
    }

    /// Resolves when the session may have changed. Cancel safe.
    pub(super) async fn changed(&self) {
        // The end of the time means the same as a notification: the session has to be read.
        let _ = timeout_at(self.look_at, self.value.changed()).await;
    }

    /// Reads the session again. `None`: it has ended.
    pub(super) async fn look(
        &mut self,
        proxy: &Arc<Proxy>,
        session: &Session,
    ) -> Result<Option<Session>, StoreError> {
        let found = session.reload(proxy).await;
        self.look_at = match &found {
            Ok(Some(session)) => look_at(proxy, session),
            // A store that is away is asked again.
            Ok(None) | Err(_) => Instant::now() + AGAIN,
        };
        found
    }
}

/// When the session has ended, unless it is used before, or after the longest wait.
fn look_at(proxy: &Arc<Proxy>, session: &Session) -> Instant {
    let left_ms = session
        .expires_ms()
        .saturating_sub(proxy.runner.ledger().now_ms());
    Instant::now() + LOOK.min(Duration::from_millis(left_ms) + SLACK)
}
