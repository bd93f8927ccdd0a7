//! The drain of the process. It happens once, even if several parties ask for it.

use tokio_util::sync::CancellationToken;

/// Shared by the parties that may start the drain, the app that does it, and the parties that wait for its end.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    asked: CancellationToken,
    done: CancellationToken,
}

impl Drain {
    /// Starts the drain. A later call joins the running drain.
    pub fn ask(&self) {
        self.asked.cancel();
    }

    /// Cancel safe.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// Marks the drain as done. Call it when no call runs any more.
    pub fn finish(&self) {
        self.done.cancel();
    }

    /// Cancel safe.
    pub async fn done(&self) {
        self.done.cancelled().await;
    }
}
