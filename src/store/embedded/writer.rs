//! The one thread that writes: group commit, each write with its own outcome.

use std::fmt;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::Duration;

use bytes::Bytes;
use redb::{Database, Durability};
use tokio::sync::{broadcast, mpsc, oneshot};
use tracing::warn;

use super::super::error::StoreError;
use super::super::notes::Name;
use super::super::{Change, Commit, Seen, Write};
use super::file::{Claim, LARGE};
use super::shelf::Claimed;
use super::slot::{Slot, failed, unavailable};
use super::tables::{Edit, Tables, tidy};
use crate::clock::Clock;

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is asked of the writer. Answered only once it is on disk.
pub(super) enum Order {
    Commit {
        write: Box<Write>,
        answer: Answer<Commit>,
    },
    Edit {
        edit: Edit,
        answer: Answer<()>,
    },
    Claim {
        name: Name,
        value: Bytes,
        expires_ms: u64,
        answer: Answer<Option<Bytes>>,
    },
    Replace {
        name: Name,
        stands: Bytes,
        value: Bytes,
        expires_ms: u64,
        answer: Answer<bool>,
    },
}

/// What the thread owns.
pub(super) struct Writer {
    pub(super) slot: Arc<Slot>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) changes: broadcast::Sender<Seen>,
    pub(super) reopen: Box<dyn FnMut() -> Result<Database, redb::DatabaseError> + Send>,
    pub(super) claim: Option<Claim>,
    /// Of large values more became free than was written since the file was last shortened: so many bytes.
    pub(super) idle: u64,
}

impl Writer {
    /// Ends when the last sender is gone and everything handed over is written.
    pub(super) fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut batch = Vec::with_capacity(BATCH);
        // While one batch waits for the disk the next one gathers: that is the group.
        while orders.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.settle(&mut batch);
            self.shorten();
        }
        self.slot.clear();
        if let Some(claim) = self.claim {
            claim.withdraw();
        }
    }

    fn settle(&mut self, batch: &mut Vec<Order>) {
        let written = match self.database() {
            Ok(database) => write(&database, batch, self.clock.now_ms()),
            Err(error) => Err(error),
        };
        match written {
            Ok(Written {
                outcomes,
                freed,
                filled,
            }) => {
                self.idle = (self.idle + freed).saturating_sub(filled);
                for (order, outcome) in batch.drain(..).zip(outcomes) {
                    self.answer(order, outcome);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                warn!(error = %error, writes = batch.len(), "the store's file cannot be written");
                for order in batch.drain(..) {
                    order.refuse(failed(&error));
                }
                self.slot.clear();
            }
        }
    }

    /// Gives the room back to the disk once half of a large file is free: what has to be moved is then less
    /// than was freed. Whoever reads waits for so long.
    fn shorten(&mut self) {
        if self.idle < LARGE {
            return;
        }
        let Some(file) = self.claim.as_ref().map(Claim::file_bytes) else {
            return;
        };
        if self.idle < file / 2 {
            return;
        }
        self.idle = 0;
        let Some(mut database) = self.slot.take(REOPEN_ATTEMPTS, REOPEN_PAUSE) else {
            return;
        };
        match tidy(&mut database, self.clock.now_ms()) {
            Ok(()) => self.slot.put(database),
            // It is opened anew with the next batch.
            Err(error) => {
                warn!(%error, "the store's file cannot be shortened");
                self.slot.clear();
            }
        }
    }

    /// Whoever waited may be gone; the write stands all the same.
    fn answer(&self, order: Order, outcome: Outcome) {
        match (order, outcome) {
            (Order::Commit { write, answer }, Outcome::Commit { commit, written }) => {
                if let (Commit::Done(revision), true, Some(_)) = (&commit, written, write.expected)
                {
                    let change = Change {
                        id: write.id,
                        revision: *revision,
                    };
                    let _ = self.changes.send(Seen::Changed(change));
                }
                let _ = answer.send(Ok(commit));
            }
            (Order::Edit { answer, .. }, _) => {
                let _ = answer.send(Ok(()));
            }
            (Order::Claim { answer, .. }, Outcome::Claimed(stands)) => {
                let _ = answer.send(Ok(stands));
            }
            (Order::Replace { answer, .. }, Outcome::Replaced(is_done)) => {
                let _ = answer.send(Ok(is_done));
            }
            (order @ (Order::Commit { .. } | Order::Claim { .. } | Order::Replace { .. }), _) => {
                order.refuse(unavailable("the write was mixed up with another"));
            }
        }
    }

    /// The open database; opened anew where the last batch failed.
    fn database(&mut self) -> Result<Arc<Database>, redb::Error> {
        if let Some(database) = self.slot.get() {
            return Ok(database);
        }
        let mut attempts = REOPEN_ATTEMPTS;
        loop {
            match (self.reopen)() {
                Ok(database) => self.slot.put(database),
                // A read is still going on with the old one.
                Err(redb::DatabaseError::DatabaseAlreadyOpen) if attempts > 0 => {
                    attempts -= 1;
                    park_timeout(REOPEN_PAUSE);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            return self.slot.get().ok_or(redb::Error::PreviousIo);
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Order {
    fn refuse(self, error: StoreError) {
        match self {
            Self::Commit { answer, .. } => drop(answer.send(Err(error))),
            Self::Edit { answer, .. } => drop(answer.send(Err(error))),
            Self::Claim { answer, .. } => drop(answer.send(Err(error))),
            Self::Replace { answer, .. } => drop(answer.send(Err(error))),
        }
    }
}

enum Outcome {
    Commit {
        commit: Commit,
        written: bool,
    },
    Edited,
    /// What stands instead.
    Claimed(Option<Bytes>),
    Replaced(bool),
}

/// What became of a batch.
struct Written {
    outcomes: Vec<Outcome>,
    /// Of large values, in bytes.
    freed: u64,
    filled: u64,
}

/// All of the batch in one transaction. An error is everybody's: nothing was written.
fn write(database: &Database, batch: &[Order], now_ms: u64) -> Result<Written, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut changed = false;
    let (freed, filled) = {
        let mut tables = Tables::open(&transaction)?;
        for order in batch {
            outcomes.push(match order {
                Order::Commit { write, .. } => {
                    let (commit, written) = tables.commit(write, now_ms)?;
                    changed |= written;
                    Outcome::Commit { commit, written }
                }
                Order::Edit { edit, .. } => {
                    tables.edit(edit, now_ms)?;
                    changed = true;
                    Outcome::Edited
                }
                Order::Claim {
                    name,
                    value,
                    expires_ms,
                    ..
                } => match tables.shelf.claim(*name, value, *expires_ms, now_ms)? {
                    Claimed::Now => {
                        changed = true;
                        Outcome::Claimed(None)
                    }
                    Claimed::Already => Outcome::Claimed(None),
                    Claimed::ByAnother(stands) => Outcome::Claimed(Some(stands)),
                },
                Order::Replace {
                    name,
                    stands,
                    value,
                    expires_ms,
                    ..
                } => {
                    let shelf = &mut tables.shelf;
                    let is_done = shelf.replace(*name, (stands, value), *expires_ms, now_ms)?;
                    changed |= is_done;
                    Outcome::Replaced(is_done)
                }
            });
        }
        let pieces = &tables.shelf.pieces;
        (pieces.freed, pieces.written)
    };
    if changed {
        transaction.commit()?;
    } else {
        // Conflicts and repetitions cost no fsync.
        transaction.abort()?;
    }
    Ok(Written {
        outcomes,
        freed,
        filled,
    })
}

/// Writes in one transaction.
const BATCH: usize = 256;

const REOPEN_ATTEMPTS: usize = 100;
const REOPEN_PAUSE: Duration = Duration::from_millis(10);
