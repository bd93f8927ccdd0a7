//! The one drain of a process, however many ask for it.

use tokio_util::sync::CancellationToken;

/// Shared by who may start the drain, who does it, and who waits for its end.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    asked: CancellationToken,
    done: CancellationToken,
}

impl Drain {
    /// Starts it; whoever comes later joins.
    pub fn ask(&self) {
        self.asked.cancel();
    }

    /// Cancel safe.
    pub async fn asked(&self) {
        self.asked.cancelled().await;
    }

    /// To be said once no call runs any more.
    pub fn finish(&self) {
        self.done.cancel();
    }

    /// Cancel safe.
    pub async fn done(&self) {
        self.done.cancelled().await;
    }
}
