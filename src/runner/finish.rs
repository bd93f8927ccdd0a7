//! Writes the end of a task. Until it is written, the result exists in memory only: if the store is away,
//! the write is tried again until the task's deadline has passed. If the store takes other writes of the task and refuses this
//! one, the task fails.

use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tracing::{error, info};

use super::report;
use super::state::Runner;
use crate::base::backoff::Backoff;
use crate::base::failpoint::{Point, hit};
use crate::mcp::error::{Failure, Reason, SideEffect};
use crate::mcp::result;
use crate::store::StoreError;
use crate::store::ledger::{ApplyError, INLINE_BYTES_MAX, Loaded};
use crate::task::id::{Fence, TaskId};
use crate::task::last_news::LastNews;
use crate::task::machine::{OwnerEvent, Rejected, TaskEvent};
use crate::task::state::{Outcome, Payload, Task};

/// The longest wait for a full store to make room for a result. Then the task fails, in a few bytes.
const FULL_PATIENCE: Duration = Duration::from_secs(30);

/// The attempts in a row that the store refuses while it takes small writes. Then the write is given up.
const REFUSED_MAX: u32 = 5;

/// The pauses between attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// A result, or a JSON-RPC error.
pub(super) type CallEnd = Result<Box<RawValue>, Box<RawValue>>;

/// Attempts to write what must not be lost, with growing pauses. All but the first take turns with those of other calls.
pub(super) struct Attempts<'a> {
    runner: &'a Runner,
    task: TaskId,
    until_ms: u64,
    pauses: Backoff,
    /// The last attempts in a row that the store refused while it took small writes.
    refused: u32,
    turn: Option<SemaphorePermit<'a>>,
}

impl Runner {
    /// Writes how the call ended, as the owner of that fence, together with its last news.
    pub(super) async fn finish(
        &self,
        loaded: &Loaded,
        fence: Fence,
        mut end: CallEnd,
        last: LastNews,
    ) {
        // Counted once and not in each attempt, because every call of `reserve` adds to the caller's bytes.
        if let Ok(result) = &end
            && result.get().len() > INLINE_BYTES_MAX
            && self
                .ledger
                .reserve(&loaded.task, result.get().len())
                .is_err()
        {
            info!(task = ?loaded.task.id, bytes = length(&end), "a result is dropped: its caller has as many bytes of tasks as it may");
            report::refused(Some(&loaded.task.name), Reason::Quota);
            end = Err(dropped(Reason::Quota));
        }
        let mut attempts = self.attempts(&loaded.task);
        let (mut room, mut full_since) = (None, None);
        loop {
            let why = match self.try_finish(loaded, fence, &end, &last).await {
                Ok(()) => return,
                Err(why) => why,
            };
            // The room comes first: the turn of the next attempt may come late.
            if room.is_none() {
                room = self.unsaved.hold(length(&end));
            }
            let now = Instant::now();
            let is_full = matches!(why, StoreError::Full);
            let full_for = is_full.then(|| now - *full_since.get_or_insert(now));
            let gives_up = full_for.is_some_and(|full_for| full_for >= FULL_PATIENCE);
            if room.is_none() || gives_up {
                error!(task = ?loaded.task.id, bytes = length(&end), "a result is dropped, because the store stayed full");
                // Even a full store takes this end, because it is short.
                end = Err(dropped(Reason::StoreLost));
            } else if end.is_ok() && attempts.are_refused(&why).await {
                // The result is kept until the short end is stored: the store may refuse every commit of this task for a while.
                let short = Err(dropped(Reason::StoreLost));
                if self.try_finish(loaded, fence, &short, &last).await.is_ok() {
                    error!(task = ?loaded.task.id, bytes = length(&end), error = %why, "a result is dropped, because the store does not take it");
                    return;
                }
            }
            if !attempts.wait_for_next().await {
                let bytes = length(&end);
                error!(task = ?loaded.task.id, bytes, error = %why, "a result was lost with the store");
                return;
            }
        }
    }

    /// Writes that the call is cancelled, as soon as the store can be asked.
    pub(super) async fn finish_cancelled(&self, loaded: &Loaded) {
        let mut attempts = self.attempts(&loaded.task);
        let by = self.carried.stopped_by(loaded.task.id);
        loop {
            let by = by.clone();
            let event = TaskEvent::Cancel { by };
            match self.ledger.apply(loaded, event).await {
                Ok((cancelled, _)) => return self.note_told(&cancelled).await,
                Err(ApplyError::Rejected(..) | ApplyError::Gone) => return,
                Err(ApplyError::Store(_)) => {}
            }
            if !attempts.wait_for_next().await {
                return;
            }
        }
    }

    pub(super) fn attempts(&self, task: &Task) -> Attempts<'_> {
        Attempts {
            runner: self,
            task: task.id,
            until_ms: task.deadline_ms,
            pauses: PAUSES,
            refused: 0,
            turn: None,
        }
    }

    async fn try_finish(
        &self,
        loaded: &Loaded,
        fence: Fence,
        end: &CallEnd,
        last: &LastNews,
    ) -> Result<(), StoreError> {
        let (outcome, message) = match end {
            Ok(result) if result.get().len() > INLINE_BYTES_MAX => {
                // Copied in each attempt, because the caller keeps the result for the attempt after a failed one.
                let bytes = Bytes::copy_from_slice(result.get().as_bytes());
                let kept = Payload::Kept {
                    fence,
                    bytes: bytes.len() as u64,
                    is_error: result::is_tool_error(result.get()),
                };
                self.ledger.keep(&loaded.task, fence, bytes).await?;
                (Outcome::Completed(kept), None)
            }
            Ok(result) => (Outcome::Completed(Payload::Inline(result.clone())), None),
            Err(error) => {
                let message = result::error_message(error).map(Into::into);
                (Outcome::Failed(error.clone()), message)
            }
        };
        let ended = OwnerEvent::Ended {
            outcome,
            message,
            last: last.clone(),
        };
        let event = TaskEvent::Owner(fence, ended);
        hit(Point::EndBefore);
        match self.ledger.apply(loaded, event).await {
            Ok((ended, _)) => {
                hit(Point::EndAfter);
                // Only the replica whose commit ended the task gets here, so no call is counted twice.
                self.learned.ended(&ended.task);
                Ok(())
            }
            Err(ApplyError::Rejected(Rejected::Ended, latest))
                if latest.task.must_tell && latest.task.fence == fence =>
            {
                // The server itself has ended the call, so raincheck need not tell the server.
                self.note_told(&latest).await;
                Ok(())
            }
            Err(ApplyError::Rejected(..) | ApplyError::Gone) => {
                info!(task = ?loaded.task.id, "an answer came after the task's end; dropped");
                Ok(())
            }
            Err(ApplyError::Store(why)) => Err(why),
        }
    }
}

impl Attempts<'_> {
    /// Counts an attempt that failed so. True: the store takes other writes of this task, and has refused this one
    /// several times.
    pub(super) async fn are_refused(&mut self, why: &StoreError) -> bool {
        // A full store may take small writes, and large ones again when others expire.
        let takes_others = matches!(why, StoreError::Unavailable(_))
            && self.runner.ledger.takes_small_writes(self.task).await;
        self.refused = if takes_others { self.refused + 1 } else { 0 };
        self.refused >= REFUSED_MAX
    }

    /// Waits for the next attempt; a shutdown allows one last attempt at once. False: there is no further
    /// attempt.
    pub(super) async fn wait_for_next(&mut self) -> bool {
        let runner = self.runner;
        // The turn goes to another call while this one pauses.
        self.turn = None;
        // After the deadline a sweeper of any replica ends the task, and a result that comes later is refused.
        if runner.ledger.now_ms() > self.until_ms || runner.halt.is_cancelled() {
            return false;
        }
        let pause = self.pauses.pause();
        // The pause comes before the turn, so that no call keeps a turn while it sleeps.
        let turn = async {
            tokio::time::sleep(pause).await;
            runner.unsaved.turn().await
        };
        self.turn = runner.halt.run_until_cancelled(turn).await.flatten();
        true
    }
}

/// The error in place of a result.
fn dropped(why: Reason) -> Box<RawValue> {
    Failure::new(why, SideEffect::Unknown).to_error().to_raw()
}

fn length(end: &CallEnd) -> usize {
    match end {
        Ok(text) | Err(text) => text.get().len(),
    }
}
