//! Follows the change logs of all buckets of a cluster by polling, because one command cannot wait for keys of
//! several slots.
//!
//! Each round polls all logs, about once a second. The logs that this replica wrote to are polled at once, because a
//! replica causes most of the changes that it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use redis::streams::StreamRangeReply;
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;
use tracing::warn;

use super::super::ChangeEvent;
use super::super::error::StoreError;
use super::keys::Keys;
use super::link::Link;
use super::log::{self, COUNT, Edge, LogPosition};
use super::replies::UNREADABLE;

/// The follower of all logs.
pub(super) struct Buckets {
    link: Arc<Link>,
    keys: Keys,
    marks: Vec<Mark>,
    written: Arc<OwnWrites>,
    changes: broadcast::Sender<ChangeEvent>,
    /// The bucket that was tried last among those that cannot be read.
    tried: u16,
}

/// The follower's position in one log.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// The last entry seen.
    last: LogPosition,
    /// A gap may follow this entry.
    unsure: Option<LogPosition>,
    /// The last read of this log failed.
    is_down: bool,
}

impl Mark {
    fn doubt(&mut self) {
        self.unsure.get_or_insert(self.last);
    }
}

/// The buckets that this replica wrote to and has not read since, one bit each.
#[derive(Default)]
pub(super) struct OwnWrites {
    bits: AtomicU64,
    some: Notify,
}

impl OwnWrites {
    pub(super) fn note(&self, bucket: u16) {
        // The bit is set first: the follower that is woken must find it.
        self.bits.fetch_or(bit(bucket), Ordering::Release);
        self.some.notify_one();
    }

    fn take(&self) -> u64 {
        self.bits.swap(0, Ordering::Acquire)
    }
}

impl Buckets {
    /// Follows each log from its current end.
    pub(super) async fn start(
        link: Arc<Link>,
        keys: Keys,
        changes: broadcast::Sender<ChangeEvent>,
    ) -> Result<(Self, Arc<OwnWrites>), StoreError> {
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
        let written = Arc::new(OwnWrites::default());
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

    /// Runs as long as it is polled. May be dropped at any point.
    pub(super) async fn run(mut self) {
        let mut round = Instant::now() + ROUND;
        let mut checked = 0_u16;
        let mut lost = false;
        loop {
            let wanted = tokio::select! {
                () = tokio::time::sleep_until(round) => {
                    // Counted from now, so that a slow cluster is not asked twice in a row.
                    round = Instant::now() + ROUND;
                    // An idle log may be lost and begun anew, so each round checks one log for that.
                    checked = checked.wrapping_add(1).checked_rem(self.keys.count()).unwrap_or(0);
                    if let Some(mark) = self.marks.get_mut(usize::from(checked)) {
                        mark.doubt();
                    }
                    // The round reads these logs, too.
                    self.written.take();
                    self.wanted_in_round()
                }
                () = self.written.some.notified() => self.written.take(),
            };
            match self.read_logs(wanted).await {
                Ok(()) => lost &= self.marks.iter().any(|mark| mark.is_down),
                Err(error) => {
                    if !std::mem::replace(&mut lost, true) {
                        warn!(%error, "a change log cannot be read; trying again");
                    }
                }
            }
        }
    }

    /// The readable logs and one unreadable log. While a whole cluster refuses, one read in each round is enough to
    /// notice that it serves again.
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

    /// Reads the logs whose bits are set, all at the same time. An error of one log delays the others by at most one
    /// command.
    async fn read_logs(&mut self, wanted: u64) -> Result<(), StoreError> {
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
                        // The answer was full, so there are more entries.
                        self.written.note(bucket);
                    }
                    for seen in seen {
                        // The send fails only if there is no follower, and then the change is not needed.
                        let _ = self.changes.send(seen);
                    }
                }
                Err(error) => {
                    // The log may be trimmed or begun anew until it can be read again.
                    mark.doubt();
                    mark.is_down = true;
                    failed = Some(error);
                }
            }
        }
        if serves_again {
            // The other unreadable logs probably serve again, too.
            let down = keys.buckets().zip(self.marks.iter());
            for (bucket, _) in down.filter(|(_, mark)| mark.is_down) {
                self.written.note(bucket);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The changes after the mark, and the new mark.
async fn read(link: &Link, log: &str, mark: Mark) -> Result<(Vec<ChangeEvent>, Mark), StoreError> {
    let mut told = Vec::new();
    let mut from = mark.last;
    if let Some(sure) = mark.unsure {
        let (first, last) = (
            end(link, log, Edge::First).await?,
            end(link, log, Edge::Last).await?,
        );
        let gap = log::check_gap(first.zip(last), sure, mark.last);
        from = gap.from;
        told.extend(gap.missed.then_some(ChangeEvent::Missed));
    }
    let mut command = redis::cmd("XREAD");
    command
        .arg("COUNT")
        .arg(COUNT)
        .arg("STREAMS")
        .arg(log)
        .arg(from.to_string());
    let reply: Value = link.query(log, &command).await?;
    let (seen, last) = log::entries(&reply, from).ok_or(UNREADABLE)?;
    // The answer was full, so the log may have been trimmed past our position.
    let unsure = (seen.len() >= COUNT).then_some(from);
    told.extend(seen);
    let mark = Mark {
        last,
        unsure,
        is_down: false,
    };
    Ok((told, mark))
}

async fn end(link: &Link, log: &str, edge: Edge) -> Result<Option<LogPosition>, StoreError> {
    let reply: StreamRangeReply = link.query(log, &log::edge(log, edge)).await?;
    Ok(log::position(&reply))
}

fn bit(bucket: u16) -> u64 {
    1_u64.checked_shl(bucket.into()).unwrap_or(0)
}

/// The time between two polls of all 64 buckets. An idle follower costs 47 commands a second.
const ROUND: Duration = Duration::from_millis(1350);
