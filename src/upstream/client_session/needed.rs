//! Whether calls that became tasks still need a client's own session.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Keeps a client's session for the tasks that need it. Some clients open a session for one call and end it
/// with the answer. The answer may be a ticket, and then the session must outlive its client's DELETE.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Needed {
    tasks: TaskTracker,
    /// The use of a session by another replica that carries a call on there.
    elsewhere: AtomicBool,
}

impl Needed {
    /// Keeps the session while the token lives.
    pub(in crate::upstream) fn token(&self) -> TaskTrackerToken {
        self.tasks.token()
    }

    pub(in crate::upstream) fn is_needed(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// True for the first caller, so that the session is ended once, however often its client asks.
    pub(in crate::upstream) fn begin_to_end(&self) -> bool {
        self.tasks.close()
    }

    /// Resolves when no call in this process needs the session. Only after [`Self::begin_to_end`].
    pub(in crate::upstream) async fn no_more(&self) {
        self.tasks.wait().await;
    }

    pub(in crate::upstream) fn is_elsewhere(&self) -> bool {
        self.elsewhere.load(Ordering::Acquire)
    }

    pub(in crate::upstream) fn set_elsewhere(&self, elsewhere: bool) {
        self.elsewhere.store(elsewhere, Ordering::Release);
    }
}
