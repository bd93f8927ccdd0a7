//! The one thread that starts processes. The kernel ends a child that is tied to its parent when the *thread*
//! that started it ends, and threads of the runtime come and go. This thread stays as long as the spawner is
//! held.

use std::io;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// The number of starts that wait in the queue. Later ones wait for a place there.
const ORDERS_MAX: usize = 16;

#[derive(Debug)]
pub(in crate::upstream) struct Spawner {
    orders: mpsc::Sender<Order>,
}

struct Order {
    command: Command,
    /// The runtime that will drive the pipes.
    runtime: Handle,
    done: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    pub(in crate::upstream) fn start() -> io::Result<Self> {
        let (orders, mut receiver) = mpsc::channel::<Order>(ORDERS_MAX);
        let work = move || {
            while let Some(mut order) = receiver.blocking_recv() {
                // tokio ties the pipes of a child to the runtime that is entered here, and this thread has none.
                let _inside = order.runtime.enter();
                // The caller has gone, so the child is dropped and thereby killed.
                let _ = order.done.send(order.command.spawn());
            }
        };
        std::thread::Builder::new()
            .name("spawner".into())
            .spawn(work)?;
        Ok(Self { orders })
    }

    /// Starts a process. If the future is dropped, a process that was started is killed.
    pub(in crate::upstream) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let gone = || io::Error::other("the thread that starts processes has ended");
        let (done, spawned) = oneshot::channel();
        let order = Order {
            command,
            runtime: Handle::current(),
            done,
        };
        self.orders.send(order).await.map_err(|_| gone())?;
        spawned.await.map_err(|_| gone())?
    }
}
