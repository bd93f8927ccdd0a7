//! The operations of a caller on its tasks: find, cancel, answer and list them, on any replica.
//!
//! Every wire form (2026-07-28, 2025-11-25, the companion tools) calls these functions and writes the outcome in its
//! own words.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};

use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Proxy;
use crate::mcp::input::InputResponses;
use crate::runner::{AnswerError, Runner};
use crate::store::ledger::{ApplyError, Loaded};
use crate::store::{ListPlace, StoreError};
use crate::task::cancelled_by::CancelledBy;
use crate::task::id::{Caller, TaskId};
use crate::task::input_rule::AnsweredBy;
use crate::task::large_results::{ReadHint, shortened};
use crate::task::machine::TaskEvent;
use crate::task::policy::Rules;
use crate::task::state::Task;
use crate::task::task_end::{TaskEnd, TaskResult};
use crate::telemetry::polls;
use crate::telemetry::repeats::OF_OUTAGE;
use crate::upstream::Forwarded;

/// The largest answer to a question. A larger one is refused before it reaches the store.
pub(in crate::downstream) const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// A store that takes longer than any of its commands may is away.
pub(in crate::downstream) const STORE_IS_AWAY: Duration = Duration::from_millis(600);

/// Tasks on one page of the list.
const PAGE: usize = 100;

/// Records that are read at the same time for one list.
const READ_AT_ONCE: usize = 32;

/// Why a request for a task was not fulfilled.
#[derive(Debug)]
pub(in crate::downstream) enum TaskError {
    /// The caller gets the same error for an unknown, expired, unannounced or foreign task.
    Unknown,
    StoreUnavailable,
    /// No replica can read what the store has of the task: it was altered, or a part of it is missing.
    Unreadable,
    /// Another replica, or this one later, can do it.
    Busy,
}

impl From<StoreError> for TaskError {
    fn from(error: StoreError) -> Self {
        if matches!(error, StoreError::Corrupt(_)) {
            tracing::warn!(%error, "a task cannot be read");
            return Self::Unreadable;
        }
        tracing::warn!(name: OF_OUTAGE, %error, "the store did not answer a request for a task");
        Self::StoreUnavailable
    }
}

/// The outcome of a request to cancel a task.
#[derive(Debug)]
pub(in crate::downstream) enum CancelOutcome {
    Cancelled(Task),
    /// The task had ended before, and stays as it was.
    HadEnded(Task),
}

/// A task, and its result where that is stored in an entry of its own.
pub(in crate::downstream) struct WholeTask {
    pub(in crate::downstream) task: Task,
    kept: Option<Bytes>,
}

impl WholeTask {
    /// The result of the call, wherever it is stored. `None`: there is none.
    pub(in crate::downstream) fn result(&self) -> Option<&str> {
        let end = TaskEnd::of(&self.task, self.kept.as_deref())?;
        end.result().map(TaskResult::text)
    }

    /// The result as a client that knows tasks gets it: whole, or as an excerpt.
    pub(in crate::downstream) fn shown(&self, rules: &Rules) -> Option<Cow<'_, str>> {
        let result = self.result()?;
        let inline_bytes = rules
            .for_tool(&self.task.name)
            .0
            .result_inline
            .for_clients();
        let way = ReadHint::Resource { knows_links: true };
        let excerpt = shortened(result, inline_bytes, self.task.id, way);
        Some(excerpt.map_or(Cow::Borrowed(result), Cow::Owned))
    }
}

/// One page of a caller's tasks.
pub(in crate::downstream) struct Page {
    pub(in crate::downstream) tasks: Vec<Task>,
    /// The last task on this page, where another page follows.
    pub(in crate::downstream) last: Option<ListPlace>,
    /// The caller has no tasks at all, on this page or any other.
    pub(in crate::downstream) has_none: bool,
}

/// The tasks of one caller.
#[derive(Clone, Copy)]
pub(in crate::downstream) struct CallerTasks<'a> {
    runner: &'a Arc<Runner>,
    caller: &'a Caller,
    asked_by: Asked<'a>,
}

/// The origin of a request for the tasks of a caller.
#[derive(Clone, Copy)]
enum Asked<'a> {
    /// No client asks, and no call is taken up.
    Internally,
    By(&'a Requester),
    /// A stream that is open. The part of its client's request that the server gets.
    OverStream(&'a Forwarded),
}

impl Proxy {
    pub(in crate::downstream) fn tasks_of<'a>(&'a self, caller: &'a Caller) -> CallerTasks<'a> {
        CallerTasks {
            runner: &self.runner,
            caller,
            asked_by: Asked::Internally,
        }
    }

    /// The tasks of the one who sends a request about a task.
    pub(in crate::downstream) fn tasks_for<'a>(&'a self, by: &'a Requester) -> CallerTasks<'a> {
        CallerTasks {
            asked_by: Asked::By(by),
            ..self.tasks_of(&by.caller)
        }
    }
}

impl<'a> CallerTasks<'a> {
    /// The same tasks, read for an open stream. `shown`: the part of its client's request that the server gets.
    pub(in crate::downstream) fn over_stream(self, shown: &'a Forwarded) -> Self {
        Self {
            asked_by: Asked::OverStream(shown),
            ..self
        }
    }

    /// An announced task of this caller. `None`: the task is unknown to the caller.
    pub(in crate::downstream) async fn find(
        self,
        id: TaskId,
    ) -> Result<Option<Loaded>, StoreError> {
        let found = self.find_unannounced(id).await?;
        Ok(found.filter(|found| found.task.announced))
    }

    /// The same, or a call with a record of which its clients know nothing.
    pub(in crate::downstream) async fn find_unannounced(
        self,
        id: TaskId,
    ) -> Result<Option<Loaded>, StoreError> {
        let loaded = self.runner.ledger().load(id).await?;
        // A foreign task is answered like one that does not exist, so that no id can be tried out.
        let own = loaded.filter(|it| it.task.is_wanted() && it.task.belongs_to(self.caller));
        match own {
            Some(loaded) if loaded.task.waits_for_client() => Ok(Some(self.taken_up(loaded).await)),
            own => Ok(own),
        }
    }

    /// Carries the call of the task on here, if this replica can. Returns the task as it is then.
    async fn taken_up(self, loaded: Loaded) -> Loaded {
        let shown = match self.asked_by {
            Asked::Internally => return loaded,
            Asked::By(by) => by.shows(),
            Asked::OverStream(shown) => shown.clone(),
        };
        Box::pin(self.runner.take_up(loaded, shown)).await
    }

    pub(in crate::downstream) async fn get(self, id: TaskId) -> Result<Loaded, TaskError> {
        let found = self.find(id).await?.ok_or(TaskError::Unknown)?;
        self.polled(&found.task);
        Ok(found)
    }

    /// A task with its result, wherever that is stored.
    pub(in crate::downstream) async fn find_whole(
        self,
        id: TaskId,
    ) -> Result<Option<WholeTask>, StoreError> {
        let Some(Loaded { task, .. }) = self.find(id).await? else {
            return Ok(None);
        };
        self.polled(&task);
        self.whole(task).await.map(Some)
    }

    /// This task with its result.
    pub(in crate::downstream) async fn whole(self, task: Task) -> Result<WholeTask, StoreError> {
        let kept = self.runner.ledger().load_kept(&task).await?;
        Ok(WholeTask { task, kept })
    }

    /// Notes for operators that the client receives the state of this task.
    pub(in crate::downstream) fn polled(self, task: &Task) {
        if let Asked::By(by) = self.asked_by
            && let Some(span) = &by.span
        {
            span.about(task);
        }
        // A stream reads such a task again and again.
        if !task.waits_for_client() {
            polls::polled(task, self.runner.ledger().now_ms());
        }
    }

    /// Cancels a task. A call that this replica carries is stopped also while the store is away.
    pub(in crate::downstream) async fn cancel(
        self,
        id: TaskId,
    ) -> Result<CancelOutcome, TaskError> {
        let committing = self.commit_cancel(id);
        tokio::pin!(committing);
        let answered = tokio::time::timeout(STORE_IS_AWAY, &mut committing).await;
        match answered {
            // A store that is away may refuse at once.
            Err(_) | Ok(Err(TaskError::StoreUnavailable)) => {
                self.runner.stop(id, self.caller, &CancelledBy::Client);
            }
            Ok(_) => {}
        }
        match answered {
            Ok(answered) => answered,
            // Not given up: a store that is only slow may still take the commit.
            Err(_slow) => committing.await,
        }
    }

    async fn commit_cancel(self, id: TaskId) -> Result<CancelOutcome, TaskError> {
        let loaded = self.get(id).await?;
        let by = CancelledBy::Client;
        self.apply_cancel(&loaded, TaskEvent::Cancel { by }).await
    }

    /// Cancels a call because its client refused to answer its question.
    pub(in crate::downstream) async fn cancel_unanswered(
        self,
        loaded: &Loaded,
    ) -> Result<CancelOutcome, TaskError> {
        self.apply_cancel(loaded, TaskEvent::AnswerRefused).await
    }

    async fn apply_cancel(
        self,
        loaded: &Loaded,
        event: TaskEvent,
    ) -> Result<CancelOutcome, TaskError> {
        match self.runner.ledger().apply(loaded, event).await {
            // The owner sees the change and tells the server.
            Ok((cancelled, _)) => Ok(CancelOutcome::Cancelled(cancelled.task)),
            Err(ApplyError::Rejected(_, stands)) => Ok(CancelOutcome::HadEnded(stands.task)),
            // A record that expired meanwhile is no longer there, like any other unknown task.
            Err(ApplyError::Gone) => Err(TaskError::Unknown),
            Err(ApplyError::Store(error)) => Err(error.into()),
        }
    }

    /// Answers questions of a task, by their keys.
    pub(in crate::downstream) async fn answer(
        self,
        task: Loaded,
        answers: InputResponses,
        from: Forwarded,
    ) -> Result<(), TaskError> {
        let answered = self
            .runner
            .answer(task, answers, (AnsweredBy::Client, from))
            .await;
        answered.map_err(|error| match error {
            AnswerError::Busy => TaskError::Busy,
            AnswerError::Gone => TaskError::Unknown,
            AnswerError::Store(error) => error.into(),
        })
    }

    /// Reads these tasks in their order, several at a time. `None`: the caller does not have the task, or its record cannot be
    /// read: one such record does not hide the others.
    pub(in crate::downstream) fn reading(
        self,
        places: Vec<ListPlace>,
    ) -> impl Stream<Item = (ListPlace, Result<Option<Task>, StoreError>)> {
        // `buffered` keeps the order of the list, because the last task that was read begins the next page.
        stream::iter(places)
            .map(move |place: ListPlace| async move {
                let found = match self.find(place.1).await {
                    Err(StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey) => {
                        Ok(None)
                    }
                    found => found.map(|found| found.map(|found| found.task)),
                };
                (place, found)
            })
            .buffered(READ_AT_ONCE)
    }

    /// The tasks that come after this one in the caller's list, as many as a page has.
    pub(in crate::downstream) async fn page(
        self,
        after: Option<ListPlace>,
    ) -> Result<Page, TaskError> {
        self.page_of(self.caller, after).await
    }

    /// The same of another list that names tasks of the caller: that of its session.
    pub(in crate::downstream) async fn page_of(
        self,
        list: &Caller,
        after: Option<ListPlace>,
    ) -> Result<Page, TaskError> {
        let store = self.runner.ledger().store();
        let (mut tasks, mut end) = (Vec::with_capacity(PAGE), None);
        let (mut from, mut is_first) = (after, true);
        // The list may name tasks that are gone or cannot be read, so one part of it may not fill a page.
        loop {
            // One more task than a page has shows whether another page follows.
            let places = store.listed(list, from, PAGE + 1).await?;
            let has_none = is_first && places.is_empty() && self.has_none(list, after).await?;
            let has_more = places.len() > PAGE;
            (from, is_first) = (places.last().copied(), false);
            let reading = self.reading(places);
            tokio::pin!(reading);
            while let Some((place, found)) = reading.next().await {
                let Some(task) = found? else {
                    continue;
                };
                // This task begins the next page, so `end` stays at the task before it.
                if tasks.len() == PAGE {
                    return Ok(Page {
                        tasks,
                        last: end,
                        has_none,
                    });
                }
                tasks.push(task);
                end = Some(place);
            }
            if !has_more {
                return Ok(Page {
                    tasks,
                    last: None,
                    has_none,
                });
            }
        }
    }

    /// Returns `true` if a list without tasks after this place has none before it either.
    async fn has_none(self, list: &Caller, after: Option<ListPlace>) -> Result<bool, StoreError> {
        if after.is_none() {
            return Ok(true);
        }
        let store = self.runner.ledger().store();
        Ok(store.listed(list, None, 1).await?.is_empty())
    }
}
