//! The jobs of the writer thread, and their outcomes.

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::error::StoreError;
use super::super::kv::Name;
use super::super::{ChangedTask, Commit, Write};
use super::handle::unavailable;
use super::kv_tables::LogAppend;
use super::tables::TableEdit;
use crate::task::id::{Revision, TaskId};

pub(super) type JobAnswer<T> = oneshot::Sender<Result<T, StoreError>>;

/// A job, and the runtime of the caller that waits for its answer.
pub(super) struct QueuedJob {
    pub(super) job: WriteJob,
    pub(super) caller: Handle,
}

/// A job for the writer. The writer answers when the job is on disk.
pub(super) enum WriteJob {
    Commit {
        write: Box<Write>,
        answer: JobAnswer<Commit>,
    },
    TableEdit {
        edit: TableEdit,
        answer: JobAnswer<()>,
    },
    Claim {
        name: Name,
        value: Bytes,
        expires_ms: u64,
        answer: JobAnswer<Option<Bytes>>,
    },
    Replace {
        name: Name,
        expected: Bytes,
        value: Bytes,
        expires_ms: u64,
        answer: JobAnswer<bool>,
    },
    Append {
        append: LogAppend,
        answer: JobAnswer<bool>,
    },
    /// Writes nothing: followers are notified after all writes before it.
    Tell { id: TaskId, answer: JobAnswer<()> },
}

pub(super) enum JobOutcome {
    Commit {
        commit: Commit,
        written: bool,
    },
    Edited {
        /// The id that followers receive, where no task was committed.
        told: Option<TaskId>,
    },
    /// The value that the name already has, if any.
    Claimed(Option<Bytes>),
    Replaced(bool),
    Appended {
        is_taken: bool,
        told: Option<TaskId>,
    },
}

impl WriteJob {
    /// Answers the job. If the caller has stopped waiting, the write is still done.
    pub(super) fn answer(self, outcome: JobOutcome) {
        match (self, outcome) {
            (Self::Commit { answer, .. }, JobOutcome::Commit { commit, .. }) => {
                let _ = answer.send(Ok(commit));
            }
            (
                Self::TableEdit { answer, .. } | Self::Tell { answer, .. },
                JobOutcome::Edited { .. },
            ) => {
                let _ = answer.send(Ok(()));
            }
            (Self::Claim { answer, .. }, JobOutcome::Claimed(current)) => {
                let _ = answer.send(Ok(current));
            }
            (Self::Replace { answer, .. }, JobOutcome::Replaced(is_done)) => {
                let _ = answer.send(Ok(is_done));
            }
            (Self::Append { answer, .. }, JobOutcome::Appended { is_taken, .. }) => {
                let _ = answer.send(Ok(is_taken));
            }
            (
                job @ (Self::Commit { .. }
                | Self::TableEdit { .. }
                | Self::Claim { .. }
                | Self::Replace { .. }
                | Self::Append { .. }
                | Self::Tell { .. }),
                _,
            ) => {
                // The writer makes each outcome from its job, so this never happens. A panic would end the only writer.
                job.refuse(unavailable("the write was mixed up with another"));
            }
        }
    }

    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Commit { answer, .. } => drop(answer.send(Err(error))),
            Self::TableEdit { answer, .. } | Self::Tell { answer, .. } => {
                drop(answer.send(Err(error)));
            }
            Self::Claim { answer, .. } => drop(answer.send(Err(error))),
            Self::Replace { answer, .. } | Self::Append { answer, .. } => {
                drop(answer.send(Err(error)));
            }
        }
    }
}

impl JobOutcome {
    /// Returns the change that followers receive for a job with this outcome.
    pub(super) fn change(&self, job: &WriteJob) -> Option<ChangedTask> {
        if let Self::Edited { told } | Self::Appended { told, .. } = self {
            let revision = Revision(0);
            return told.map(|id| ChangedTask { id, revision });
        }
        // Creations are not published, because no component watches a task before it exists. A repeated write was
        // published the first time.
        if let WriteJob::Commit { write, .. } = job
            && write.expected.is_some()
            && let Self::Commit {
                commit: Commit::Done(revision),
                written: true,
            } = self
        {
            let revision = *revision;
            return Some(ChangedTask {
                id: write.id,
                revision,
            });
        }
        None
    }
}
