//! Threads of their own for the parts of this bar, so that what is measured is raincheck and not the bar: in one runtime
//! the server and the neighbour would wait for clients that flood.

use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A task with a thread and a runtime of its own. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Apart {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Apart {
    /// The future is made by this function on the thread, which need not be one that could move.
    pub(super) fn start<F: Future<Output = ()>>(task: impl FnOnce() -> F + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async { stopped.run_until_cancelled(task()).await });
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.stop.cancel();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Runs a flood to its end, at the lowest priority: elsewhere who floods does not use the cores of who is flooded.
pub(super) async fn flood<T, F>(task: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let (ended, end) = oneshot::channel();
    let _apart = Apart::start(move || async move {
        // Of this thread only.
        let _ = rustix::process::nice(LOWEST);
        let _ = ended.send(task().await);
    });
    end.await.expect("a flood that comes to its end")
}

/// What is added to the number that is the higher the lower a priority is.
const LOWEST: i32 = 19;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
