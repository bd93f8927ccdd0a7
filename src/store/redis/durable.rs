//! Writes that count only when replicas or the disk confirm them.
//!
//! WAIT blocks its connection and covers only the writes of that connection. So durable writes have their own
//! connection to each server and go there in batches: the next batch gathers while one waits. A write that is not
//! confirmed in time is in doubt, although it stands.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::sync::{mpsc, oneshot};

use super::super::error::StoreError;
use super::keys::slot_of;
use super::link::{Link, Script, fault, is_unknown};
use super::map::RedisServer;
use super::topology::Topology;

/// The confirmation that a durable write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The number of replicas that must acknowledge the write.
    pub replicas: usize,
    /// `true` if the server's append-only file must be synced (Redis 7.2).
    pub aof: bool,
    /// After this time the write is in doubt.
    pub timeout: Duration,
}

/// Gives durable writes to the [`Worker`], and waits for their confirmation.
pub(super) struct Durable {
    jobs: mpsc::Sender<PendingWrite>,
    timeout: Duration,
}

struct PendingWrite {
    slot: u16,
    command: Cmd,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl Durable {
    /// The returned worker does the work as long as it is polled.
    pub(super) fn new(
        topology: Arc<Topology>,
        wait: Wait,
        command_timeout: Duration,
    ) -> (Self, Worker) {
        let (sender, jobs) = mpsc::channel(BATCH);
        // Each WAIT may take its whole time, behind the writes themselves.
        let timeout = wait.timeout * waits(wait) + command_timeout;
        let worker = Worker {
            link: Link::new(Arc::clone(&topology), timeout),
            topology,
            wait,
            jobs,
        };
        // A write waits for the batch before its own, then for its own batch.
        let timeout = timeout * 2;
        let durable = Self {
            jobs: sender,
            timeout,
        };
        (durable, worker)
    }

    /// Runs a script by its digest, or by its text if the server does not know the digest.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &Script,
        key: &str,
        fill: impl Fn(&mut Cmd),
    ) -> Result<T, StoreError> {
        let answered = match self.send(key, script.by_digest(&fill)).await {
            Err(error) if is_unknown(&error) => self.send(key, script.by_text(&fill)).await,
            answered => answered,
        };
        let read = answered.and_then(|value| Ok(redis::from_redis_value(value)?));
        read.map_err(fault)
    }

    /// Sends a write once. After any error that the server did not return, the write is in doubt.
    async fn send(&self, key: &str, command: Cmd) -> RedisResult<Value> {
        let (answer, answered) = oneshot::channel();
        let job = PendingWrite {
            slot: slot_of(key),
            command,
            answer,
        };
        let work = async {
            self.jobs.send(job).await.ok()?;
            answered.await.ok()
        };
        // The worker ends with the store, after which no write comes.
        let in_time = tokio::time::timeout(self.timeout, work).await;
        in_time.ok().flatten().unwrap_or_else(|| Err(unconfirmed()))
    }
}

/// Sends the writes in batches and reports their outcomes.
pub(super) struct Worker {
    link: Link,
    topology: Arc<Topology>,
    wait: Wait,
    jobs: mpsc::Receiver<PendingWrite>,
}

impl Worker {
    /// May be dropped at any point. The writes on their way are in doubt then.
    pub(super) async fn run(mut self) {
        let mut gathered: HashMap<String, (Arc<RedisServer>, Vec<PendingWrite>)> = HashMap::new();
        let mut busy = HashSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            let held: usize = gathered.values().map(|(_, jobs)| jobs.len()).sum();
            tokio::select! {
                Some(done) = running.next() => { busy.remove(&done); }
                // Without this bound all writes would gather here while the servers are busy, and none in the queue.
                Some(job) = self.jobs.recv(), if held < BATCH => {
                    let map = self.topology.map();
                    if let Some(server) = map.server_of(job.slot) {
                        let place = gathered.entry(server.name.clone());
                        let (_, jobs) = place.or_insert_with(|| (Arc::clone(server), Vec::new()));
                        jobs.push(job);
                    } else {
                        // The write is dropped before it was sent.
                        self.topology.doubt(&down());
                    }
                }
                else => return,
            }
            let ready: Vec<_> = gathered
                .keys()
                .filter(|name| !busy.contains(*name))
                .cloned()
                .collect();
            for name in ready {
                if let Some((server, jobs)) = gathered.remove(&name) {
                    busy.insert(name.clone());
                    running.push(perform(&self.link, &self.topology, self.wait, server, jobs));
                }
            }
        }
    }
}

/// Sends one batch. Returns the name of its server at the end.
async fn perform(
    link: &Link,
    topology: &Topology,
    wait: Wait,
    server: Arc<RedisServer>,
    jobs: Vec<PendingWrite>,
) -> String {
    let (commands, answers): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .map(|job| (job.command, job.answer))
        .unzip();
    let mut pipeline = redis::pipe();
    // The refusal of one write must not take the answers of the others.
    pipeline.ignore_errors();
    for command in commands {
        pipeline.add_command(command);
    }
    add_waits(&mut pipeline, wait);
    match link.batch(&server, &pipeline).await {
        Ok(mut told) => {
            let kept = told.split_off(answers.len().min(told.len()));
            let kept = kept.len() == waits(wait) as usize
                && kept.iter().all(|told| has_enough(told, wait));
            for (answer, told) in answers.into_iter().zip(told) {
                let told = match told {
                    Ok(_) if !kept => Err(unconfirmed()),
                    told => told.inspect_err(|error| topology.doubt(error)),
                };
                // The caller may have stopped waiting.
                let _ = answer.send(told);
            }
        }
        // The answers are dropped, so that each caller finds its write unconfirmed.
        Err(error) => topology.doubt(&error),
    }
    server.name.clone()
}

fn add_waits(pipeline: &mut Pipeline, wait: Wait) {
    let ms = u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX);
    if wait.replicas > 0 {
        pipeline.cmd("WAIT").arg(wait.replicas).arg(ms);
    }
    if wait.aof {
        pipeline.cmd("WAITAOF").arg(1).arg(0).arg(ms);
    }
}

fn waits(wait: Wait) -> u32 {
    u32::from(wait.replicas > 0) + u32::from(wait.aof)
}

/// WAIT returns the number of replicas; WAITAOF returns the number of local files (0 or 1) and of replicas' files.
fn has_enough(told: &RedisResult<Value>, wait: Wait) -> bool {
    match told {
        Ok(Value::Int(replicas)) => {
            usize::try_from(*replicas).is_ok_and(|replicas| replicas >= wait.replicas)
        }
        Ok(Value::Array(told)) => matches!(told.first(), Some(Value::Int(1))),
        _ => false,
    }
}

fn unconfirmed() -> RedisError {
    (ErrorKind::Io, "not confirmed by replicas or disk in time").into()
}

fn down() -> RedisError {
    let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
    (kind, "nobody holds the slot").into()
}

/// The most writes that wait for a batch; further writes wait for a place in the queue.
const BATCH: usize = 256;
