//! The writer thread: commits waiting jobs as a group, and answers each job with its own outcome.

use std::fmt;
use std::sync::Arc;
use std::thread::park_timeout;
use std::time::Duration;

use redb::{Database, Durability};
use tokio::sync::{broadcast, mpsc};
use tracing::warn;

use super::super::ChangeEvent;
use super::answers::WriteAnswers;
use super::file::{LARGE, PidFile};
use super::handle::{DatabaseHandle, failed};
use super::jobs::{JobOutcome, QueuedJob, WriteJob};
use super::kv_tables::ClaimOutcome;
use super::tables::{Tables, compact};
use crate::base::clock::Clock;
use crate::base::io_reason::io_reason;

/// The state of the writer thread.
pub(super) struct DatabaseWriter {
    pub(super) database: Arc<DatabaseHandle>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) changes: broadcast::Sender<ChangeEvent>,
    pub(super) reopen: Box<dyn FnMut() -> Result<Database, redb::DatabaseError> + Send>,
    pub(super) pid_file: Option<PidFile>,
    /// Bytes of large values that became free, less those written, since the last compaction.
    pub(super) reclaimable: u64,
}

impl DatabaseWriter {
    /// Writes until the last sender is gone and all jobs are done.
    pub(super) fn run(mut self, mut jobs: mpsc::Receiver<QueuedJob>) {
        let mut batch = Vec::with_capacity(BATCH);
        // While one batch waits for the disk, the next batch gathers.
        while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
            self.settle(&mut batch);
            self.compact_if_worthwhile();
        }
        // The file is closed before its hint goes, so that a process that finds it locked can name this one.
        self.database.clear();
        if let Some(pid_file) = self.pid_file {
            pid_file.remove_pid();
        }
    }

    /// Writes one batch and answers its jobs.
    fn settle(&mut self, batch: &mut Vec<QueuedJob>) {
        let written = match self.database() {
            Ok(database) => write(&database, batch, self.clock.now_ms()),
            Err(error) => Err(error),
        };
        match written {
            Ok(BatchOutcome {
                outcomes,
                freed,
                filled,
            }) => {
                self.reclaimable = (self.reclaimable + freed).saturating_sub(filled);
                let mut answers = WriteAnswers::default();
                for (queued, outcome) in batch.drain(..).zip(outcomes) {
                    // Published before the answer goes: once a caller has its answer, every follower has the change.
                    self.publish(&queued.job, &outcome);
                    answers.add(queued, outcome);
                }
                answers.send();
            }
            Err(error) => {
                let error = Arc::new(error);
                warn!(error = %io_reason(&error), writes = batch.len(), "the store file cannot be written");
                for queued in batch.drain(..) {
                    queued.job.refuse(failed(&error));
                }
                // redb refuses every further call after an I/O error. The next batch opens the file again.
                self.database.clear();
            }
        }
    }

    /// Compacts a large file once half of it is free, because redb then moves less than it frees. Reads wait
    /// meanwhile.
    fn compact_if_worthwhile(&mut self) {
        if self.reclaimable < LARGE {
            return;
        }
        // A store in memory has no file that could become shorter.
        let Some(file) = self.pid_file.as_ref().map(PidFile::file_bytes) else {
            return;
        };
        if self.reclaimable < file / 2 {
            return;
        }
        // Reset also if reads keep the database: each attempt may hold up the writer for a second.
        self.reclaimable = 0;
        let Some(mut database) = self.database.take(REOPEN_ATTEMPTS, REOPEN_PAUSE) else {
            return;
        };
        match compact(&mut database, self.clock.now_ms()) {
            Ok(()) => self.database.put(database),
            // The next batch opens the file again.
            Err(error) => {
                warn!(error = %io_reason(&error), "the store file cannot be compacted");
                self.database.clear();
            }
        }
    }

    /// Sends the change of a job to followers.
    fn publish(&self, job: &WriteJob, outcome: &JobOutcome) {
        if let Some(change) = outcome.change(job) {
            // The send fails only if there is no follower, and then the change is not needed.
            let _ = self.changes.send(ChangeEvent::Changed(change));
        }
    }

    /// The open database. Opens the file again if the last batch failed.
    fn database(&mut self) -> Result<Arc<Database>, redb::Error> {
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let mut attempts = REOPEN_ATTEMPTS;
        loop {
            match (self.reopen)() {
                Ok(database) => self.database.put(database),
                // A read still uses the old handle.
                Err(redb::DatabaseError::DatabaseAlreadyOpen) if attempts > 0 => {
                    attempts -= 1;
                    park_timeout(REOPEN_PAUSE);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            return self.database.get().ok_or(redb::Error::PreviousIo);
        }
    }
}

impl fmt::Debug for DatabaseWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseWriter")
    }
}

/// The outcomes of a batch.
struct BatchOutcome {
    outcomes: Vec<JobOutcome>,
    /// Bytes of large values that the batch freed.
    freed: u64,
    /// Bytes of large values that the batch wrote.
    filled: u64,
}

/// Writes the whole batch in one transaction. On an error nothing was written, so every job of the batch fails.
fn write(
    database: &Database,
    batch: &[QueuedJob],
    now_ms: u64,
) -> Result<BatchOutcome, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut changed = false;
    let (freed, filled) = {
        let mut tables = Tables::new(&transaction);
        for QueuedJob { job, .. } in batch {
            outcomes.push(match job {
                WriteJob::Commit { write, .. } => {
                    let (commit, written) = tables.commit(write, now_ms)?;
                    changed |= written;
                    JobOutcome::Commit { commit, written }
                }
                WriteJob::TableEdit { edit, .. } => {
                    changed = true;
                    tables.edit(edit, now_ms)?;
                    JobOutcome::Edited { told: None }
                }
                WriteJob::Tell { id, .. } => JobOutcome::Edited { told: Some(*id) },
                WriteJob::Claim {
                    name,
                    value,
                    expires_ms,
                    ..
                } => match tables.kv.claim(*name, value, *expires_ms, now_ms)? {
                    ClaimOutcome::Written => {
                        changed = true;
                        JobOutcome::Claimed(None)
                    }
                    ClaimOutcome::Repeated => JobOutcome::Claimed(None),
                    ClaimOutcome::Taken(current) => JobOutcome::Claimed(Some(current)),
                },
                WriteJob::Replace {
                    name,
                    expected,
                    value,
                    expires_ms,
                    ..
                } => {
                    let kv = &mut tables.kv;
                    let is_done = kv.replace(*name, (expected, value), *expires_ms, now_ms)?;
                    changed |= is_done;
                    JobOutcome::Replaced(is_done)
                }
                WriteJob::Append { append, .. } => {
                    let is_taken = tables.kv.append(append, now_ms)?;
                    changed |= is_taken;
                    let is_read = is_taken && tables.kv.is_read(append.log, now_ms)?;
                    JobOutcome::Appended {
                        is_taken,
                        told: is_read.then(|| append.log.told_as()),
                    }
                }
            });
        }
        let pieces = &tables.kv.pieces;
        (pieces.freed, pieces.written)
    };
    if changed {
        transaction.commit()?;
    } else {
        // Conflicts and repetitions cost no fsync.
        transaction.abort()?;
    }
    Ok(BatchOutcome {
        outcomes,
        freed,
        filled,
    })
}

/// The most jobs in one transaction.
const BATCH: usize = 256;

const REOPEN_ATTEMPTS: usize = 100;
const REOPEN_PAUSE: Duration = Duration::from_millis(10);
