//! Follows the change logs of all buckets of a cluster: asked in turn, because one command cannot
//! wait for keys of several slots.
//!
//! A look at all of them comes about once a second, whatever happens. What this replica wrote
//! itself is looked for at once: most of what it waits for it has caused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::streams::{StreamRangeReply, StreamReadReply};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tracing::warn;

use super::super::ChangeEvent;
use super::super::error::StoreError;
use super::keys::Keys;
use super::link::Link;
use super::log::{self, COUNT, Edge, Position};

/// Where the follower is in each log.
pub(super) struct Buckets {
    link: Arc<Link>,
    keys: Keys,
    marks: Vec<Mark>,
    written: Arc<Written>,
    changes: broadcast::Sender<ChangeEvent>,
    /// Of those that cannot be read, the one that was tried last.
    tried: u16,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    /// The last entry seen.
    last: Position,
    /// There may be a gap after this one.
    unsure: Option<Position>,
    /// It could not be read when it was last looked at.
    is_down: bool,
}

impl Mark {
    fn doubt(&mut self) {
        self.unsure.get_or_insert(self.last);
    }
}

/// Buckets that this replica wrote to and has not looked at since, a bit each.
#[derive(Default)]
pub(super) struct Written {
    bits: AtomicU64,
    some: Notify,
}

impl Written {
    pub(super) fn note(&self, bucket: u16) {
        self.bits.fetch_or(bit(bucket), Ordering::Release);
        self.some.notify_one();
    }

    fn take(&self) -> u64 {
        self.bits.swap(0, Ordering::Acquire)
    }
}

impl Buckets {
    /// Follows from what is now the end of each log.
    pub(super) async fn start(
        link: Arc<Link>,
        keys: Keys,
        changes: broadcast::Sender<ChangeEvent>,
    ) -> Result<(Self, Arc<Written>), StoreError> {
        let ends = keys.buckets().map(|bucket| {
            let (link, log) = (&link, keys.log(bucket));
            async move { end(link, &log, Edge::Last).await }
        });
        let mut marks = Vec::new();
        for last in join_all(ends).await {
            marks.push(Mark {
                last: last?.unwrap_or_default(),
                unsure: None,
                is_down: false,
            });
        }
        let written = Arc::new(Written::default());
        let buckets = Self {
            link,
            keys,
            marks,
            written: Arc::clone(&written),
            changes,
            tried: 0,
        };
        Ok((buckets, written))
    }

    /// For as long as it is polled; may be dropped at any point.
    pub(super) async fn run(mut self) {
        let mut round = Instant::now() + ROUND;
        let mut checked = 0_u16;
        let mut lost = false;
        loop {
            let wanted = tokio::select! {
                () = tokio::time::sleep_until(round) => {
                    round = Instant::now() + ROUND;
                    // Idle, a log may be lost and begun anew: one is looked at in each round.
                    checked = checked.wrapping_add(1).checked_rem(self.keys.count()).unwrap_or(0);
                    if let Some(mark) = self.marks.get_mut(usize::from(checked)) {
                        mark.doubt();
                    }
                    self.written.take();
                    self.wanted_in_round()
                }
                () = self.written.some.notified() => self.written.take(),
            };
            match self.look(wanted).await {
                Ok(()) => lost &= self.marks.iter().any(|mark| mark.is_down),
                Err(error) => {
                    if !std::mem::replace(&mut lost, true) {
                        warn!(%error, "a change log cannot be read; trying again");
                    }
                }
            }
        }
    }

    /// All that can be read, and one that could not: where a whole cluster refuses, a look in each
    /// round is enough to learn that it serves again.
    fn wanted_in_round(&mut self) -> u64 {
        let count = self.keys.count().max(1);
        let is_down = |bucket: u16| {
            let mark = self.marks.get(usize::from(bucket));
            mark.is_some_and(|mark| mark.is_down)
        };
        let readable = self.keys.buckets().filter(|bucket| !is_down(*bucket));
        let readable = readable.fold(0, |bits, bucket| bits | bit(bucket));
        let ahead = (1..=count).map(|ahead| self.tried.wrapping_add(ahead) % count);
        let Some(tried) = ahead.into_iter().find(|bucket| is_down(*bucket)) else {
            return readable;
        };
        self.tried = tried;
        readable | bit(tried)
    }

    /// Reads the buckets whose bits are set, all at once; an error of some does not keep the
    /// others waiting longer than one command.
    async fn look(&mut self, wanted: u64) -> Result<(), StoreError> {
        let (link, keys) = (&self.link, &self.keys);
        let wanted = keys
            .buckets()
            .zip(self.marks.iter().copied())
            .filter(|(bucket, _)| wanted & bit(*bucket) != 0);
        let read = join_all(wanted.map(|(bucket, mark)| async move {
            (bucket, read(link, &keys.log(bucket), mark).await)
        }));
        let (mut failed, mut serves_again) = (None, false);
        for (bucket, read) in read.await {
            let Some(mark) = self.marks.get_mut(usize::from(bucket)) else {
                continue;
            };
            match read {
                Ok((seen, now)) => {
                    serves_again |= mark.is_down;
                    *mark = now;
                    if now.unsure.is_some() {
                        // A full answer: there is more.
                        self.written.note(bucket);
                    }
                    for seen in seen {
                        // Nobody follows: nobody misses it.
                        let _ = self.changes.send(seen);
                    }
                }
                Err(error) => {
                    mark.doubt();
                    mark.is_down = true;
                    failed = Some(error);
                }
            }
        }
        if serves_again {
            // Most likely the others do, too.
            let down = keys.buckets().zip(self.marks.iter());
            for (bucket, _) in down.filter(|(_, mark)| mark.is_down) {
                self.written.note(bucket);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// What was logged after the mark, and the next mark.
async fn read(link: &Link, log: &str, mark: Mark) -> Result<(Vec<ChangeEvent>, Mark), StoreError> {
    let mut told = Vec::new();
    let mut from = mark.last;
    if let Some(sure) = mark.unsure {
        let (first, last) = (
            end(link, log, Edge::First).await?,
            end(link, log, Edge::Last).await?,
        );
        let verdict = log::judge(first.zip(last), sure, mark.last);
        from = verdict.from;
        told.extend(verdict.missed.then_some(ChangeEvent::Missed));
    }
    let mut command = redis::cmd("XREAD");
    command
        .arg("COUNT")
        .arg(COUNT)
        .arg("STREAMS")
        .arg(log)
        .arg(from.to_string());
    let reply: Option<StreamReadReply> = link.query(log, &command).await?;
    let (seen, last) = log::entries(reply, from);
    // Full, and it may have been trimmed past us.
    let unsure = (seen.len() >= COUNT).then_some(from);
    told.extend(seen);
    let mark = Mark {
        last,
        unsure,
        is_down: false,
    };
    Ok((told, mark))
}

async fn end(link: &Link, log: &str, edge: Edge) -> Result<Option<Position>, StoreError> {
    let reply: StreamRangeReply = link.query(log, &log::edge(log, edge)).await?;
    Ok(log::position(&reply))
}

fn bit(bucket: u16) -> u64 {
    1_u64.checked_shl(bucket.into()).unwrap_or(0)
}

/// Between two looks at all of 64 buckets: idle, following costs 47 commands a second.
const ROUND: Duration = Duration::from_millis(1350);
