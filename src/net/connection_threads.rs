//! Threads that serve connections. Each has a runtime of its own, so that one core serves a connection from its first
//! byte to its last: the data of a connection stays in the core's cache, and no thread wakes another for it. What a
//! request needs beside its connection should be the thread's own, too: [`PerThread`].

use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::base::io_reason::io_reason;
use crate::base::lock::Mutex;
use crate::platform::pipe::blocking_threads;

/// The most connection threads of a process.
pub const THREADS_MAX: usize = 64;

/// The most threads of each runtime for work that blocks, beside pipes of processes.
const BLOCKING_MAX: usize = 64;

/// The next end of a timer of each thread is never further away.
///
/// tokio sets the end of its wait when it begins to wait. A timer that ends before that interrupts the wait by a system
/// call, also if the thread does not wait but sets the timer itself (tokio's issue 5207). The timers of a request are
/// longer than this, so none of them costs that call.
const NEXT_TIMER: Duration = Duration::from_secs(1);

/// The time that the end of the process waits until the jobs on the threads are dropped.
const LAST: Duration = Duration::from_secs(1);

thread_local! {
    /// The number of this thread among the connection threads, from 1. `None`: it is no connection thread.
    static NUMBER: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
}

/// The connection threads of a process. Dropping this ends them, and drops what still runs on them.
#[derive(Debug, Default)]
pub struct ConnectionThreads {
    threads: Vec<ConnectionThread>,
    /// Where the search for a thread begins. Jobs stay on the thread of the request that began them, so threads with as many
    /// connections take turns.
    next: AtomicUsize,
    /// Reports that all threads have ended: each of them holds a sender.
    ended: Option<Mutex<mpsc::Receiver<()>>>,
}

#[derive(Debug)]
struct ConnectionThread {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    /// Dropped, it ends the thread.
    running: oneshot::Sender<()>,
}

impl ConnectionThreads {
    /// Starts as many threads as the present runtime has workers. With one worker there are none: it serves the
    /// connections, and no other thread touches their data.
    pub fn start() -> io::Result<Self> {
        let workers = Handle::current().metrics().num_workers();
        if workers < 2 {
            return Ok(Self::default());
        }
        let (ending, ended) = mpsc::channel();
        let numbers = (1..=workers.min(THREADS_MAX)).filter_map(NonZeroUsize::new);
        let threads = numbers.map(|number| ConnectionThread::start(number, ending.clone()));
        Ok(Self {
            threads: threads.collect::<Result<_, _>>()?,
            next: AtomicUsize::new(0),
            ended: Some(Mutex::new(ended)),
        })
    }

    /// Serves a connection on the thread that has the fewest. `serve` is called on that thread.
    pub fn spawn<F>(
        &self,
        tracker: &TaskTracker,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(thread) = self.fewest() else {
            tracker.spawn(async move { serve(stream).await });
            return;
        };
        // Counted before the job runs, so that connections that come at the same moment go to different threads.
        let counted = Counted::new(&thread.connections);
        // It belongs to the runtime that accepted it.
        let stream = stream.into_std();
        let serving = async move {
            let _counted = counted;
            match stream.and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => {
                    debug!(error = %io_reason(&error), "a connection could not be served");
                }
            }
        };
        tracker.spawn_on(serving, &thread.runtime);
    }

    /// The thread that has the fewest connections.
    fn fewest(&self) -> Option<&ConnectionThread> {
        let begin = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        let (before, after) = self.threads.split_at_checked(begin)?;
        // The runtime of a thread that has ended drops what is spawned on it, and the connection with it.
        let living = after
            .iter()
            .chain(before)
            .filter(|thread| !thread.running.is_closed());
        // The counts only spread connections and guard no data, so relaxed loads suffice.
        living.min_by_key(|thread| thread.connections.load(Ordering::Relaxed))
    }
}

impl Drop for ConnectionThreads {
    fn drop(&mut self) {
        // This drops the senders, which ends the threads. The field itself is dropped only after this function.
        self.threads.clear();
        if let Some(ended) = self.ended.take() {
            // Nothing is ever sent: an error at once says that all senders are gone.
            let _ = ended.into_inner().recv_timeout(LAST);
        }
    }
}

impl ConnectionThread {
    /// `ending` is dropped when the thread has ended.
    fn start(number: NonZeroUsize, ending: mpsc::Sender<()>) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(blocking_threads(BLOCKING_MAX))
            .build()?;
        let handle = runtime.handle().clone();
        handle.spawn(async {
            loop {
                tokio::time::sleep(NEXT_TIMER).await;
            }
        });
        let (running, end) = oneshot::channel();
        let thread = thread::Builder::new().name(format!("connections-{number}"));
        thread.spawn(move || {
            NUMBER.set(Some(number));
            // The end comes as an error: the sender never sends, and is dropped.
            let _ = runtime.block_on(end);
            // Drops what still runs, and does not wait for work that blocks.
            runtime.shutdown_background();
            drop(ending);
        })?;
        Ok(Self {
            runtime: handle,
            connections: Arc::default(),
            running,
        })
    }
}

/// A connection among those of its thread.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A value for each connection thread, made when the thread first needs it, and one value for all other threads.
#[derive(Debug)]
pub struct PerThread<T> {
    elsewhere: Arc<T>,
    threads: Box<[OnceLock<Arc<T>>]>,
}

impl<T: Default> PerThread<T> {
    /// The value of this thread.
    pub fn here(&self) -> &Arc<T> {
        let number = NUMBER
            .get()
            .and_then(|number| self.threads.get(number.get() - 1));
        number.map_or(&self.elsewhere, |value| value.get_or_init(Arc::default))
    }

    /// The value of the threads that serve no connections, for what threads share.
    pub fn elsewhere(&self) -> &Arc<T> {
        &self.elsewhere
    }

    /// The values of all threads.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        let threads = self.threads.iter().filter_map(OnceLock::get);
        threads.chain([&self.elsewhere])
    }
}

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self {
            elsewhere: Arc::default(),
            threads: (0..THREADS_MAX).map(|_| OnceLock::new()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;

    use super::*;

    async fn stream() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap()
    }

    /// Returns the state of the threads.
    fn named() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn connections_are_spread_and_stay_where_they_are() {
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let (seen, go_on) = (
            Arc::new(Mutex::new(BTreeMap::new())),
            Arc::new(Semaphore::new(0)),
        );
        for _ in 0..9 {
            let (seen, go_on) = (Arc::clone(&seen), Arc::clone(&go_on));
            threads.spawn(&tracker, stream().await, move |_| async move {
                let name = named();
                let _ = go_on.acquire().await;
                assert_eq!(named(), name);
                *seen.lock().entry(name).or_insert(0) += 1;
            });
        }
        go_on.add_permits(9);
        tracker.close();
        tracker.wait().await;
        let each = ["connections-1", "connections-2", "connections-3"];
        let each = each.map(|name| (name.to_owned(), 3));
        assert_eq!(*seen.lock(), BTreeMap::from(each));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn connections_that_end_at_once_take_turns() {
        let threads = ConnectionThreads::start().unwrap();
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        for _ in 0..6 {
            let (tracker, seen) = (TaskTracker::new(), Arc::clone(&seen));
            threads.spawn(&tracker, stream().await, move |_| async move {
                *seen.lock().entry(named()).or_insert(0) += 1;
            });
            tracker.close();
            tracker.wait().await;
        }
        assert_eq!(seen.lock().values().collect::<Vec<_>>(), [&2, &2, &2]);
    }

    #[tokio::test]
    async fn one_worker_serves_all_by_itself() {
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let here = named();
        threads.spawn(&tracker, stream().await, move |_| async move {
            assert_eq!(named(), here);
        });
        tracker.close();
        tracker.wait().await;
        assert!(threads.threads.is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_runs_is_dropped_with_the_threads() {
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let (dropped, hears) = oneshot::channel::<()>();
        threads.spawn(&tracker, stream().await, move |_| async move {
            let _dropped = dropped;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(hears.await.is_err());
        tracker.close();
        tracker.wait().await;
    }

    /// The `write` calls of this thread so far.
    #[cfg(target_os = "linux")]
    fn writes() -> u64 {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("syscw: "));
        line.unwrap().parse().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_timer_costs_no_system_call() {
        use std::pin::pin;
        use std::task::Poll;

        use futures_util::poll;

        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let (says, heard) = oneshot::channel();
        threads.spawn(&tracker, stream().await, |_| async {
            // The thread looks for events, and so for its next timer.
            tokio::task::yield_now().await;
            let before = writes();
            for _ in 0..100 {
                let ends = pin!(tokio::time::sleep(Duration::from_mins(1)));
                assert_eq!(poll!(ends), Poll::Pending);
            }
            says.send(writes() - before).unwrap();
        });
        let written = heard.await.unwrap();
        assert!(written < 10, "{written} writes for 100 timers");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_thread_has_a_value_of_its_own() {
        let (threads, tracker) = (ConnectionThreads::start().unwrap(), TaskTracker::new());
        let values = Arc::new(PerThread::<AtomicUsize>::default());
        for _ in 0..4 {
            let values = Arc::clone(&values);
            threads.spawn(&tracker, stream().await, move |_| async move {
                values.here().fetch_add(1, Ordering::Relaxed);
            });
        }
        tracker.close();
        tracker.wait().await;
        values.here().fetch_add(7, Ordering::Relaxed);
        let sum: usize = values
            .all()
            .map(|value| value.load(Ordering::Relaxed))
            .sum();
        assert_eq!(sum, 4 + 7);
        assert_eq!(values.elsewhere.load(Ordering::Relaxed), 7);
    }
}
