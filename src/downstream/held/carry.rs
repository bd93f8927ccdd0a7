//! The job of one held call: reads what is said, keeps it, shows it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::live::{Holding, Tail};
use super::log::{Entry, Head, Log, Meaning};
use super::{Call, Stop};
use crate::downstream::heartbeat::Heartbeat;
use crate::downstream::reply::Rpc;
use crate::downstream::tasks::Shared;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::StoreError;
use crate::upstream::channel::session::Said;

/// Between attempts to write into a log that its store did not take.
const RETRY: Duration = Duration::from_secs(1);

/// No clock ends later.
const LASTS_MAX: Duration = Duration::from_hours(24 * 365);

/// How long a server may take to hear that nobody waits.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long an answer waits in memory for its store.
const ANSWER_WAITS: Duration = Duration::from_mins(10);

/// A server that was told that nobody waits has so long for a last word. Many never say one.
const CANCELLED_PATIENCE: Duration = Duration::from_secs(30);

/// What is shown of a call, and the clock of its client.
type Begun = (watch::Receiver<Tail>, Option<Heartbeat>);

/// Begins the job. Without room for it the source is given back.
pub(super) fn begin(
    front: &Shared,
    call: Call,
    log: Log,
    source: BoxStream<'static, Said>,
) -> Result<Begun, BoxStream<'static, Said>> {
    let (tail, shown) = watch::channel(Tail::default());
    let session = call.place.key();
    let holding = front
        .holds
        .begin(log.name(), session, &call.id, shown.clone());
    let Some(holding) = holding else {
        tracing::warn!("too many calls are held: one more ends with its client's connection");
        return Err(source);
    };
    let token = call.progress_token.filter(|_| call.rule.heartbeat);
    let now_ms = log.now_ms();
    let age = Instant::now().saturating_duration_since(call.began);
    let head = Head {
        owner: front.runner.incarnation().as_str().into(),
        id: call.id,
        began_ms: now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or_default()),
        heartbeat: token.clone(),
        is_over: false,
    };
    let lasts_ms = call.rule.max_duration_ms;
    let job = Job {
        front: Arc::clone(front),
        log,
        holding,
        tail,
        head,
        head_is_written: false,
        said: 0,
        logged: 0,
        tried: None,
        is_behind: false,
        stop: Some(call.stop),
        deadline: Instant::now() + Duration::from_millis(lasts_ms).min(LASTS_MAX),
        is_cancelled: false,
        retention_ms: call.rule.retention_ms,
        expires_ms: now_ms
            .saturating_add(lasts_ms)
            .saturating_add(call.rule.retention_ms),
    };
    front.runner.attend(job.run(source));
    Ok((
        shown,
        token.map(|token| Heartbeat::since(call.began, token)),
    ))
}

struct Job {
    front: Shared,
    log: Log,
    holding: Holding,
    tail: watch::Sender<Tail>,
    head: Head,
    head_is_written: bool,
    /// The number of the last entry.
    said: u64,
    /// That of the last one which is in the log, or was forgotten before it could be.
    logged: u64,
    /// When the store last failed.
    tried: Option<Instant>,
    /// It is known that the store has not all of it.
    is_behind: bool,
    stop: Option<Stop>,
    deadline: Instant,
    is_cancelled: bool,
    retention_ms: u64,
    expires_ms: u64,
}

impl Job {
    async fn run(mut self, mut source: BoxStream<'static, Said>) {
        self.write_down().await;
        self.tail.send_modify(|tail| tail.is_begun = true);
        let last = loop {
            match self.listen(&mut source).await {
                Said::Message(message) => self.say(Entry::new(Meaning::Message, message)).await,
                Said::Answer(answer) if answer.is_empty() => {
                    break Entry::new(Meaning::End, answer);
                }
                Said::Answer(answer) => break Entry::new(Meaning::Answer, answer),
            }
        };
        drop(source);
        let gave_up = Instant::now() >= self.deadline || self.front.runner.halt().is_cancelled();
        let must_tell = gave_up && !self.is_cancelled;
        // From here on it is kept for its retention.
        self.expires_ms = self.log.now_ms().saturating_add(self.retention_ms);
        self.tried = None;
        let size = last.len();
        self.say(last).await;
        self.head.is_over = true;
        self.head_is_written = false;
        self.write_down().await;
        if let Some(stop) = self.stop.take().filter(|_| must_tell) {
            let _ = tokio::time::timeout(STOP_PATIENCE, stop).await;
        }
        if !self.is_written_down() {
            self.wait_for_the_store(size).await;
        }
    }

    /// What is said next; an answer without words: there will be none.
    async fn listen(&mut self, source: &mut BoxStream<'static, Said>) -> Said {
        let halt = self.front.runner.halt().clone();
        loop {
            let retry = async {
                match self.tried {
                    Some(tried) => tokio::time::sleep_until(tried + RETRY).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                said = source.next() => {
                    return said.unwrap_or_else(|| Said::Answer(String::new()));
                }
                () = halt.cancelled() => return failed(&self.head.id, Reason::Shutdown),
                () = tokio::time::sleep_until(self.deadline) => {
                    // Nobody waits for what was cancelled, and its server knows.
                    if self.is_cancelled {
                        return Said::Answer(String::new());
                    }
                    return failed(&self.head.id, Reason::Deadline);
                }
                () = self.holding.cancelled.cancelled(), if !self.is_cancelled => {
                    self.is_cancelled = true;
                    self.deadline = self.deadline.min(Instant::now() + CANCELLED_PATIENCE);
                }
                () = retry => self.write_down().await,
            }
        }
    }

    /// Kept before it is shown: a client that saw it finds it on every replica.
    async fn say(&mut self, entry: Entry) {
        self.said += 1;
        let number = self.said;
        self.write_down().await;
        if self.logged + 1 == number && self.head_is_written {
            match self.log.append(number, &entry, self.expires_ms).await {
                Ok(()) => self.logged = number,
                Err(error) => self.store_failed(&error),
            }
        }
        self.tail.send_modify(|tail| tail.push(number, entry));
    }

    fn is_written_down(&self) -> bool {
        self.head_is_written && self.logged == self.said
    }

    /// Writes what the store has not taken yet, in order, unless it has just failed.
    async fn write_down(&mut self) {
        let is_too_early = self
            .tried
            .is_some_and(|tried| Instant::now() < tried + RETRY);
        if is_too_early {
            return;
        }
        self.tried = None;
        match self.try_write_down().await {
            Ok(()) => self.is_behind = false,
            Err(error) => self.store_failed(&error),
        }
    }

    async fn try_write_down(&mut self) -> Result<(), StoreError> {
        let behind = self.tail.borrow().kept_behind(self.logged);
        for (number, entry) in behind {
            self.log.append(number, &entry, self.expires_ms).await?;
            self.logged = number;
        }
        // After the entries: it may say that they are all there.
        if !self.head_is_written {
            self.log.write_head(&self.head, self.expires_ms).await?;
            self.head_is_written = true;
        }
        Ok(())
    }

    fn store_failed(&mut self, error: &StoreError) {
        if !std::mem::replace(&mut self.is_behind, true) {
            tracing::warn!(%error, "the store did not take what a held call said");
        }
        self.tried = Some(Instant::now());
    }

    /// Whoever comes back meanwhile finds the answer here.
    async fn wait_for_the_store(&mut self, answer_bytes: usize) {
        let Some(_room) = self.front.holds.keep(answer_bytes) else {
            tracing::warn!("an answer that the store did not take is kept no longer");
            return;
        };
        let halt = self.front.runner.halt().clone();
        let waits = Duration::from_millis(self.retention_ms).min(ANSWER_WAITS);
        let write = async {
            while !self.is_written_down() {
                tokio::time::sleep(RETRY).await;
                self.write_down().await;
            }
        };
        let _ = halt
            .run_until_cancelled(tokio::time::timeout(waits, write))
            .await;
    }
}

fn failed(id: &RawValue, reason: Reason) -> Said {
    let failure = Failure::new(reason, SideEffect::Unknown);
    Said::Answer(Rpc::failure(id.get(), failure).json)
}
