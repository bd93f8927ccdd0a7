//! Looks at the tasks that the due index names: overdue and offered tasks, and those whose receivers must still be
//! notified of them.

use std::sync::Arc;

use super::indexed::IndexedRecord;
use super::notices::{DueKinds, NoticesLeft, SWEPT_MAX};
use super::state::Runner;
use super::undelivered::UndeliveredTasks;
use crate::store::StoreError;
use crate::store::ledger::Loaded;
use crate::task::id::TaskId;
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::TaskEvent;
use crate::task::state::Task;
use crate::task::unanswered;
use crate::upstream::Forwarded;

/// The number of tasks of the due index that one sweep handles; the rest wait for the next.
const DUE_MAX: usize = 256;

/// The most tasks that a sweep handles beyond [`DUE_MAX`]. Offered tasks for which no replica had room come
/// before overdue tasks in the index.
const PASSED_MAX: usize = 1024;

/// The most records that a sweep reads beyond these, to find the tasks that are there only for their receivers.
const READ_MAX: usize = 1024;

/// The most tasks that are known to wait for their receivers, and that a sweep looks at again.
const AWAITING_MAX: usize = 256;

/// The facts about the due index that are kept from one sweep to the next.
#[derive(Debug, Default)]
pub(super) struct DueHistory {
    /// The number of tasks that stayed in the index although the last sweep handled them.
    passed: usize,
    undelivered: UndeliveredTasks,
}

/// The remaining budget of one sweep.
#[derive(Debug)]
struct Budget {
    tasks: usize,
    notices: NoticesLeft,
}

impl Runner {
    /// Ends overdue tasks, owned or not, because an owner that is frozen ends nothing. Sends notifications again of
    /// questions that wait for long, and gives the answers of rules. Claims the tasks that a draining replica offers.
    /// Notifies receivers, too, but no task waits for its turn behind tasks that only wait for their receivers.
    pub(super) async fn sweep_due(
        self: &Arc<Self>,
        history: &mut DueHistory,
    ) -> Result<(), StoreError> {
        let now_ms = self.ledger.now_ms();
        let tasks = DUE_MAX + history.passed.min(PASSED_MAX);
        history.passed = 0;
        // The index names the remembered tasks at each sweep again, so they must not take the places of others in its
        // answer.
        let limit = tasks + READ_MAX + history.undelivered.len();
        let named = self.ledger.store().due(now_ms, limit).await?;
        let looks = history.undelivered.split(named, now_ms);
        let mut notices = NoticesLeft::of_each(SWEPT_MAX);
        // The first looks must not use up all notices, or tasks that wait only for receivers would get no turn.
        let kept = notices.take_for(looks.turns.kinds());
        let mut left = Budget { tasks, notices };
        for id in looks.first.into_iter().take(tasks + READ_MAX) {
            if left.tasks == 0 {
                break;
            }
            self.look(id, history, &mut left).await?;
        }
        left.notices.give_back(&kept);
        let mut turns = looks.turns;
        for _ in 0..AWAITING_MAX {
            let Some(id) = turns.next(&left.notices) else {
                break;
            };
            self.look(id, history, &mut left).await?;
        }
        Ok(())
    }

    /// Does what is to be done for one task of the index.
    async fn look(
        self: &Arc<Self>,
        id: TaskId,
        history: &mut DueHistory,
        left: &mut Budget,
    ) -> Result<(), StoreError> {
        let record = self.read_indexed(id).await?;
        if let IndexedRecord::Record(loaded) = &record
            && !loaded.task.is_offered()
            && !self.is_overdue(&loaded.task)
        {
            let kinds = DueKinds::of(&loaded.task, self.ledger.now_ms());
            // Read before the notices are used: without any left, the task keeps its place among those that wait.
            let has_turn = left.notices.has_some(kinds);
            if self.tell_receivers(loaded, &mut left.notices).await {
                history.undelivered.forget(id);
            } else {
                let now_ms = self.ledger.now_ms();
                history.undelivered.note(&loaded.task, has_turn, now_ms);
            }
            return Ok(());
        }
        history.undelivered.forget(id);
        left.tasks = left.tasks.saturating_sub(1);
        match record {
            IndexedRecord::Record(loaded)
                if loaded.task.is_offered() && !self.is_overdue(&loaded.task) =>
            {
                history.passed += 1;
                // A replica that drains begins no calls, and may have offered the task itself.
                if !self.draining.is_cancelled() {
                    self.dispatch_again(*loaded).await?;
                }
            }
            IndexedRecord::Record(loaded) => {
                let is_done = self.on_due(*loaded, &mut left.notices).await;
                history.passed += usize::from(!is_done);
            }
            IndexedRecord::OthersOnly => history.passed += 1,
            // At the head of the index the entry would keep others waiting.
            IndexedRecord::Gone | IndexedRecord::Unreadable => {
                // Only the due index is cleaned, because without a record the owner is not known.
                self.ledger.store().forget(id, None).await?;
            }
        }
        Ok(())
    }

    /// Does what is due for the task: notifies its receivers, as far as `notices_left` goes, answers or repeats its
    /// questions by the rule, and ends the task at its deadline. Returns `false` if something is left to do, and the
    /// task stays in the index.
    async fn on_due(self: &Arc<Self>, loaded: Loaded, notices_left: &mut NoticesLeft) -> bool {
        let has_told = self.tell_receivers(&loaded, notices_left).await;
        if let Some(answers) = unanswered::answers(&loaded.task, self.ledger.now_ms()) {
            let from = (AnsweredBy::Rule, Forwarded::default());
            return self.answer(loaded, answers, from).await.is_ok() && has_told;
        }
        // If this ends the task, an owner that lives sees the end in the change log and cancels the call at the
        // server.
        self.settle(&loaded, TaskEvent::Tick).await;
        has_told
    }

    fn is_overdue(&self, task: &Task) -> bool {
        let now_ms = self.ledger.now_ms();
        task.due_ms().is_some_and(|due_ms| due_ms <= now_ms)
    }
}
