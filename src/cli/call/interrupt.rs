//! Ctrl-C, as often as it is pressed.

use std::io;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::platform::signals::Interrupt;

/// Each clone sees every Ctrl-C after its creation once.
#[derive(Debug, Clone)]
pub(super) struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// From now on Ctrl-C no longer ends the process.
    pub(super) fn new(jobs: &TaskTracker) -> io::Result<Self> {
        let mut interrupt = Interrupt::new()?;
        // A watch keeps a press that comes while no receiver is polled.
        let (pressed, seen) = watch::channel(0);
        jobs.spawn(async move {
            while !pressed.is_closed() {
                interrupt.pressed().await;
                pressed.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(seen))
    }

    /// Cancel safe.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
