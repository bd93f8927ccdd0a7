//! Calls, or tasks, that stay open: what do they cost in memory?

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::monotonic_ns;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::calls::{fresh, is_completed};
use crate::client::Client;
use crate::options::{Held, Options};
use crate::tally::{CreatedTask, Tally};
use crate::usage::Usage;
use crate::wire::Call;

/// Open tasks that are asked for, if the options do not say how many polls: each must be `working`. They are asked for at
/// the same time, because a server may answer a poll without news seconds later, and the tasks end meanwhile.
const SAMPLE: usize = 200;

/// What was measured of open calls.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) count: u64,
    pub(crate) seconds: f64,
    /// Calls whose connection was closed.
    pub(crate) lost: u64,
    /// Tasks of the sample that were not `working`.
    pub(crate) wrong: u64,
    /// Memory while all were open.
    pub(crate) rss_kib: u64,
    /// Memory of before.
    pub(crate) rss_before_kib: u64,
    pub(crate) cpu_ms: u64,
}

/// What the openers share.
struct Opening {
    what: Held,
    options: Arc<Options>,
    tally: Arc<Tally>,
    next: AtomicUsize,
    /// The clients of open calls. A client that is dropped closes its connection.
    clients: Mutex<Vec<Client>>,
}

/// Opens as many as the options say, waits, and samples the memory of the processes.
pub(crate) async fn hold(
    what: Held,
    options: &Arc<Options>,
    tally: &Arc<Tally>,
    rss_before_kib: u64,
) -> Opened {
    tally.begin_counting();
    let opening = Arc::new(Opening {
        what,
        options: Arc::clone(options),
        tally: Arc::clone(tally),
        next: AtomicUsize::new(0),
        clients: Mutex::default(),
    });
    let before = Usage::of(&options.pids);
    let began = Instant::now();
    let mut openers = JoinSet::new();
    for _ in 0..options.concurrency.min(options.open) {
        openers.spawn(open_next(Arc::clone(&opening)));
    }
    while openers.join_next().await.is_some() {}
    let took = Instant::now().saturating_duration_since(began);
    sleep(options.hold).await;
    let after = Usage::of(&options.pids);
    let (lost, wrong) = match what {
        Held::Tasks => (0, wrong_tasks(options, tally).await),
        Held::Calls => (opening.lost_calls().await, 0),
    };
    Opened {
        count: tally.calls().max(1),
        seconds: took.as_secs_f64(),
        lost,
        wrong,
        rss_kib: after.rss_kib,
        rss_before_kib,
        cpu_ms: after.since(&before).cpu_ms(),
    }
}

async fn open_next(opening: Arc<Opening>) {
    let mut client = Client::new(&opening.options, None);
    loop {
        let place = opening.next.fetch_add(1, Relaxed);
        if place >= opening.options.open {
            return;
        }
        let opened = match opening.what {
            Held::Tasks => opening.open_task(&mut client).await,
            Held::Calls => opening.open_call(place).await,
        };
        match opened {
            Ok(()) => opening.tally.count_call(),
            Err(error) => opening.tally.fail(error),
        }
    }
}

impl Opening {
    async fn open_task(&self, client: &mut Client) -> Result<(), String> {
        let (id, nonce) = fresh();
        let request = self.request(id, &nonce, None);
        let outcome = client.request(id, &request, |_| {}).await?;
        let id = outcome.created_task(self.options.wire)?;
        self.tally.add_task(CreatedTask { id, nonce });
        Ok(())
    }

    /// Each call has a connection of its own.
    async fn open_call(&self, place: usize) -> Result<(), String> {
        let source = source(place, self.options.sources);
        let mut client = Client::new(&self.options, source);
        client.ready().await?;
        let (id, nonce) = fresh();
        let session = client.session_id();
        client
            .send(&self.request(id, &nonce, session.as_deref()))
            .await?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.push(client);
        Ok(())
    }

    fn request(&self, id: u64, nonce: &str, session: Option<&str>) -> Vec<u8> {
        let slow_ms = self.options.slow_ms;
        self.options.call(Call {
            id,
            session,
            arguments: &format!(r#""nonce":"{nonce}","ms":{slow_ms}"#),
            wants_task: self.what == Held::Tasks,
            wants_progress: false,
        })
    }

    /// Connections that were closed, or that broke, while their calls were open.
    async fn lost_calls(&self) -> u64 {
        let clients = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *clients)
        };
        let mut lost = 0;
        for mut client in clients {
            let Some(connection) = client.connection() else {
                continue;
            };
            // The head of an event stream is no fault: its answer is still to come.
            if let Ok(Err(error)) = timeout(Duration::ZERO, connection.head()).await {
                lost += 1;
                self.tally.fail(error);
            }
        }
        lost
    }
}

/// Asks for open tasks: for each as often as for every other, until `--polls` are answered. Their latencies are those of
/// the measurement. Without `--polls`: for a sample, each over a connection of its own.
async fn wrong_tasks(options: &Arc<Options>, tally: &Arc<Tally>) -> u64 {
    let tasks = Arc::new(tally.tasks());
    let (polls, pollers) = match options.polls {
        0 => (SAMPLE.min(tasks.len()), SAMPLE),
        polls => (polls, options.concurrency),
    };
    if tasks.is_empty() {
        return 0;
    }
    let step = (tasks.len() / polls).max(1);
    let next = Arc::new(AtomicUsize::new(0));
    let mut polling = JoinSet::new();
    for _ in 0..pollers.min(polls) {
        let (tasks, next) = (Arc::clone(&tasks), Arc::clone(&next));
        let (options, tally) = (Arc::clone(options), Arc::clone(tally));
        polling.spawn(async move {
            let mut client = Client::new(&options, None);
            let (mut wrong, mut latencies_ns) = (0, Vec::new());
            loop {
                let place = next.fetch_add(1, Relaxed);
                let Some(task) = tasks.get(place * step % tasks.len()) else {
                    break;
                };
                if place >= polls {
                    break;
                }
                let began = monotonic_ns();
                match is_completed(&mut client, &options, &task.id, None).await {
                    Ok(false) => {}
                    Ok(true) => wrong += 1,
                    Err(error) => {
                        wrong += 1;
                        tally.fail(error);
                    }
                }
                latencies_ns.push(monotonic_ns().saturating_sub(began));
            }
            if options.polls > 0 {
                tally.add_latencies(&latencies_ns);
            }
            wrong
        });
    }
    let mut wrong = 0;
    while let Some(ended) = polling.join_next().await {
        wrong += ended.unwrap_or(1);
    }
    wrong
}

/// The loopback address of a client, where there is more than one: an address has too few ports for 60,000 connections.
fn source(place: usize, sources: u8) -> Option<IpAddr> {
    if sources <= 1 {
        return None;
    }
    let host = u8::try_from(place % usize::from(sources)).ok()?;
    Some(Ipv4Addr::new(127, 0, 0, host + 1).into())
}
