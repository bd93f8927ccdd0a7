//! Turns: how many pieces of work of one kind run at the same time, for each caller and in all. Further work waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::sharing::resizable::{ResizablePermit, ResizableSemaphore};
use crate::sharing::shares::{Share, Shares};
use crate::task::id::Caller;

/// The turns of one kind of work.
#[derive(Debug)]
pub struct Turns {
    of_caller: Arc<Shares>,
    in_all: Arc<ResizableSemaphore>,
    /// Wakes the work that waits for other work of its caller.
    ended: Arc<Notify>,
}

/// The turn of one piece of work. Dropping it ends it.
#[derive(Debug)]
pub struct Turn {
    _in_all: ResizablePermit,
    _of_caller: CallersTurn,
}

/// The share is returned before the others are woken: fields drop in their order.
#[derive(Debug)]
struct CallersTurn {
    _share: Share,
    _wakes: WakesOnDrop,
}

#[derive(Debug)]
struct WakesOnDrop(Arc<Notify>);

impl Drop for WakesOnDrop {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

impl Turns {
    pub fn new(of_caller: usize, in_all: usize) -> Self {
        Self {
            of_caller: Shares::new(of_caller),
            in_all: ResizableSemaphore::new(in_all),
            ended: Arc::default(),
        }
    }

    /// Waits until the caller may begin. `None`: no turn became free in time.
    pub async fn take(&self, caller: Caller, patience: Duration) -> Option<Turn> {
        let turn = async {
            // The caller's own turn comes first: a caller without a free turn takes no place from others meanwhile.
            let of_caller = self.callers_turn(caller).await;
            Some(Turn {
                _in_all: Arc::clone(&self.in_all).take().await.ok()?,
                _of_caller: of_caller,
            })
        };
        timeout(patience, turn).await.ok().flatten()
    }

    async fn callers_turn(&self, caller: Caller) -> CallersTurn {
        loop {
            // Made before the share is asked for, so that no end of a turn falls in between.
            let ended = self.ended.notified();
            if let Some(share) = self.of_caller.take(caller, 1) {
                return CallersTurn {
                    _share: share,
                    _wakes: WakesOnDrop(Arc::clone(&self.ended)),
                };
            }
            ended.await;
        }
    }
}
