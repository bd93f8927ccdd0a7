//! The job of one held call: reads what is said, keeps it, shows it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{Call, Stop};
use super::entry::Meaning;
use super::live::{Holding, Tail};
use super::log::{Head, Log, Terms};
use super::pen::{Pen, RETRY};
use super::words::Word;
use crate::downstream::cancels;
use crate::downstream::heartbeat::Heartbeat;
use crate::downstream::legacy::pushes::SessionKey;
use crate::downstream::proxy::Shared;
use crate::downstream::reply::Rpc;
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::store::StoreError;
use crate::upstream::channel::session::Said;

/// No clock ends later.
const LASTS_MAX: Duration = Duration::from_hours(24 * 365);

/// How long a server may take to hear that nobody waits.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long an answer waits in memory for its store.
const ANSWER_WAITS: Duration = Duration::from_mins(10);

/// A server that was told that nobody waits has so long for a last word. Many never say one.
const CANCELLED_PATIENCE: Duration = Duration::from_secs(30);

/// How often a call looks for what other replicas did about it.
const LOOK: Duration = Duration::from_secs(1);

/// How often the store is asked to take the word that an answer was not kept.
const ASKED_AGAIN: Duration = Duration::from_secs(5);

/// What is shown of a call, and the clock of its client.
type Begun = (watch::Receiver<Tail>, Option<Heartbeat>);

/// Begins the job. Without room for it the source is given back.
pub(super) fn begin(
    front: &Shared,
    call: Call,
    log: Log,
    source: BoxStream<'static, Word>,
) -> Result<Begun, BoxStream<'static, Word>> {
    let (tail, shown) = watch::channel(Tail::default());
    let session = call.place.key();
    let holding = front
        .holds
        .begin(log.name(), session, &call.id, shown.clone());
    let Some(holding) = holding else {
        tracing::warn!("too many calls are held: one more ends with its client's connection");
        return Err(source);
    };
    let token = call.progress_token.clone();
    let token = token.filter(|_| call.rule.heartbeat);
    let age = Instant::now().saturating_duration_since(call.began);
    let age_ms = u64::try_from(age.as_millis()).unwrap_or_default();
    let began_ms = log.now_ms().saturating_sub(age_ms);
    let head = Head {
        owner: front.runner.incarnation().as_str().into(),
        id: call.id.clone(),
        began_ms,
        terms: Terms {
            ends_ms: began_ms.saturating_add(call.rule.max_duration_ms),
            retention_ms: call.rule.retention_ms,
            bytes_max: call.bytes_max(),
        },
        point: None,
        heartbeat: token.clone(),
        is_over: false,
    };
    let job = Job::new(
        front,
        Pen::new(log, head, tail, 0, Instant::now()),
        holding,
        session,
        call.stop,
    );
    front.runner.attend(job.run(source));
    Ok((
        shown,
        token.map(|token| Heartbeat::since(call.began, token)),
    ))
}

pub(super) struct Job {
    front: Shared,
    pen: Pen,
    holding: Holding,
    session: SessionKey,
    stop: Option<Stop>,
    deadline: Instant,
    /// When to look what other replicas did, however much is said until then.
    next_look: Instant,
    is_cancelled: bool,
}

impl Job {
    pub(super) fn new(
        front: &Shared,
        pen: Pen,
        holding: Holding,
        session: SessionKey,
        stop: Stop,
    ) -> Self {
        let left_ms = pen.head().terms.ends_ms.saturating_sub(pen.log().now_ms());
        Self {
            front: Arc::clone(front),
            pen,
            holding,
            session,
            stop: Some(stop),
            deadline: Instant::now() + Duration::from_millis(left_ms).min(LASTS_MAX),
            next_look: Instant::now() + LOOK,
            is_cancelled: false,
        }
    }

    pub(super) async fn run(mut self, mut source: BoxStream<'static, Word>) {
        self.pen.begin().await;
        let answer = loop {
            if self.pen.is_lost() {
                return;
            }
            let Word { said, event_id } = self.listen(&mut source).await;
            match (said, event_id) {
                (Some(Said::Message(message)), event_id) => {
                    let event_id = event_id.as_deref();
                    self.pen.say(Meaning::Message, message, event_id).await;
                }
                (Some(Said::Answer(answer)), _) => break answer,
                (None, Some(event_id)) => self.pen.resumes_at(&event_id).await,
                (None, None) => {}
            }
        };
        drop(source);
        let gave_up = Instant::now() >= self.deadline || self.front.runner.halt().is_cancelled();
        let must_tell = gave_up && !self.is_cancelled;
        let meaning = if answer.is_empty() {
            Meaning::End
        } else {
            Meaning::Answer
        };
        let size = answer.len();
        let (log, terms) = (self.pen.log(), self.pen.head().terms);
        let (name, now_ms) = (log.name(), log.now_ms());
        let kept = &self.front.holds.kept;
        let lasts_ms = kept.add(name, size, now_ms, terms.retention_ms);
        self.pen.keep_for(lasts_ms);
        self.pen.end(meaning, answer).await;
        if self.pen.is_lost() {
            return;
        }
        if let Some(stop) = self.stop.take().filter(|_| must_tell) {
            let _ = tokio::time::timeout(STOP_PATIENCE, stop).await;
        }
        if !self.pen.is_written_down() {
            let halt = self.front.runner.halt().clone();
            halt.run_until_cancelled(self.wait_for_the_store(size))
                .await;
        }
    }

    /// What is said next; an answer without words: there will be none. Nothing: look whether the
    /// call is still ours.
    async fn listen(&mut self, source: &mut BoxStream<'static, Word>) -> Word {
        let halt = self.front.runner.halt().clone();
        loop {
            let retries_at = self.pen.retries_at();
            let retry = async {
                match retries_at {
                    Some(then) => tokio::time::sleep_until(then).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                word = source.next() => {
                    return word.unwrap_or_else(|| Said::Answer(String::new()).into());
                }
                () = halt.cancelled() => {
                    let is_left = self.front.runner.others_carry_on() && self.pen.leave().await;
                    if !is_left {
                        return failed(&self.pen.head().id, Reason::Shutdown);
                    }
                }
                () = tokio::time::sleep_until(self.deadline) => {
                    // Nobody waits for what was cancelled, and its server knows.
                    if self.is_cancelled {
                        return Said::Answer(String::new()).into();
                    }
                    return failed(&self.pen.head().id, Reason::Deadline);
                }
                () = self.holding.cancelled.cancelled(), if !self.is_cancelled => {
                    self.is_cancelled = true;
                    self.deadline = self.deadline.min(Instant::now() + CANCELLED_PATIENCE);
                }
                () = retry => self.pen.write_down().await,
                () = tokio::time::sleep_until(self.next_look), if retries_at.is_none() => {
                    self.next_look = Instant::now() + LOOK;
                    if let Err(error) = self.look_around().await {
                        self.pen.store_failed(&error);
                    }
                }
            }
            if self.pen.is_lost() {
                return Word::NOTHING;
            }
        }
    }

    /// What other replicas did about the call.
    async fn look_around(&mut self) -> Result<(), StoreError> {
        self.pen.make_sure().await?;
        if self.is_cancelled {
            return Ok(());
        }
        let Head { id, began_ms, .. } = self.pen.head();
        if cancels::is_told(&self.front, self.session, id, *began_ms).await? {
            self.holding.cancelled.cancel();
        }
        Ok(())
    }

    /// Whoever comes back meanwhile finds the answer here. Those who wait elsewhere are told at last
    /// that it is lost, as soon as the store takes that.
    async fn wait_for_the_store(&mut self, answer_bytes: usize) {
        if let Some(_room) = self.front.holds.keep(answer_bytes) {
            let retention = Duration::from_millis(self.pen.head().terms.retention_ms);
            let write = write_until_taken(&mut self.pen, RETRY);
            let _ = tokio::time::timeout(retention.min(ANSWER_WAITS), write).await;
        }
        if self.pen.is_written_down() {
            return;
        }
        tracing::warn!("an answer that the store did not take is kept no longer");
        let failure = Failure::new(Reason::StoreLost, SideEffect::Unknown);
        let instead = Rpc::failure(self.pen.head().id.get(), failure).json;
        self.pen.end_instead(instead).await;
        // Until nobody finds the call any more.
        let Terms {
            ends_ms,
            retention_ms,
            ..
        } = self.pen.head().terms;
        let forgotten_ms = ends_ms.saturating_add(retention_ms);
        let left = Duration::from_millis(forgotten_ms.saturating_sub(self.pen.log().now_ms()));
        let write = write_until_taken(&mut self.pen, ASKED_AGAIN);
        let _ = tokio::time::timeout(left.min(LASTS_MAX), write).await;
    }
}

async fn write_until_taken(pen: &mut Pen, pause: Duration) {
    while !pen.is_written_down() {
        tokio::time::sleep(pause).await;
        pen.write_again().await;
    }
}

fn failed(id: &RawValue, reason: Reason) -> Word {
    let failure = Failure::new(reason, SideEffect::Unknown);
    Said::Answer(Rpc::failure(id.get(), failure).json).into()
}
