//! The tasks of all replicas, for operators: list, show, cancel, answer.
//!
//! Open tasks are found by the store's due index, which names each of them, whichever replica carries it. Those that have ended
//! are found in the history, which outlives their records.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use crate::mcp::elicitation;
use crate::mcp::input::{self, InputResponses};
use crate::runner::{AnswerError, Runner};
use crate::store::StoreError;
use crate::store::history::HistoryQuery;
use crate::store::ledger::{ApplyError, Loaded};
use crate::task::cancelled_by::CancelledBy;
use crate::task::history::EndedTask;
use crate::task::id::TaskId;
use crate::task::input_rule::AnsweredBy;
use crate::task::machine::TaskEvent;
use crate::task::recovery;
use crate::task::state::Task;
use crate::upstream::Forwarded;

mod failures;
mod past;
mod query;
mod related;
mod stats;
mod summary;
mod timeline;
mod tree;
mod words;

use query::{TaskQuery, wants_tree};
use summary::{ListedTask, Payloads, Shown};
use words::beginning;

/// The most open tasks, and the most ended ones, that one list looks at.
const TASKS_MAX: usize = 10_000;

/// Records that are read at the same time for one list.
const READ_AT_ONCE: usize = 32;

/// Lists that are made at the same time. Further ones wait.
const LISTS_MAX: usize = 2;

/// A store on several servers shows a part of its due index in each look, and all of it in so many.
const LOOKS: usize = 8;

/// The most chunks of the history that a list with open tasks looks into.
const CHUNKS_MAX: usize = 64;

/// Why an operator's request was not done.
#[derive(Debug)]
pub(super) enum TaskActionError {
    /// The request is wrong; the sentence explains how.
    Wrong(String),
    /// The store has no such task.
    Unknown,
    /// No open task, and none of the history, begins like this.
    UnknownBeginning,
    /// The task is in a state that does not allow it; the sentence explains why.
    Conflict(String),
    /// The store or this replica cannot do it now.
    Unavailable(String),
}

impl From<StoreError> for TaskActionError {
    fn from(error: StoreError) -> Self {
        Self::Unavailable(format!("the store does not answer: {error}"))
    }
}

/// The changed tasks, and the answer that the operator receives.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) tasks: Vec<TaskId>,
    pub(super) answer: Value,
}

/// The tasks of the store, as operators reach them.
#[derive(Debug)]
pub(super) struct OperatorTasks {
    /// The runner of the parts that serve now.
    runner: watch::Receiver<Arc<Runner>>,
    show_payloads: bool,
    lists: Semaphore,
}

impl OperatorTasks {
    pub(super) fn new(runner: watch::Receiver<Arc<Runner>>, show_payloads: bool) -> Self {
        Self {
            runner,
            show_payloads,
            lists: Semaphore::new(LISTS_MAX),
        }
    }

    /// The name of this replica, and the names of all whose leases run, if that is known.
    pub(super) fn replicas(&self) -> (String, Option<Vec<String>>) {
        let runner = self.runner();
        let replica = runner.incarnation().replica().to_owned();
        (replica, runner.living_replicas())
    }

    /// A page of the list, with counts over the whole list, or a page of the history.
    pub(super) async fn list(&self, query: &str) -> Result<Value, TaskActionError> {
        let query = TaskQuery::read(query).map_err(TaskActionError::Wrong)?;
        // The semaphore is never closed. The permit is held until the list is made.
        let _place = self.lists.acquire().await;
        if query.is_about_past() {
            return self.past(&query).await;
        }
        let (open, is_partial) = self.read_open().await?;
        let now_ms = self.now_ms();
        let (ended, is_more) = if query.wants_ended() {
            let page = self.ended(HistoryQuery {
                filter: &query.filter,
                checks_end: false,
                unacknowledged: false,
                after: None,
                limit: TASKS_MAX,
                chunks_max: CHUNKS_MAX,
            });
            let page = page.await?;
            (page.entries, page.next.is_some())
        } else {
            (Vec::new(), false)
        };
        // A task that ended after it was read as open is on the list once.
        let known: HashSet<TaskId> = ended.iter().map(|ended| ended.id).collect();
        let open = open
            .into_iter()
            .filter(|task| !known.contains(&task.id) && query.filter.passes_running(task, now_ms));
        let mut tasks: Vec<ListedTask> = open
            .map(|task| ListedTask::Open(Box::new(task)))
            .chain(
                ended
                    .into_iter()
                    .map(|ended| ListedTask::Ended(Box::new(ended))),
            )
            .collect();
        let counts = summary::counts(&tasks);
        tasks.retain(|task| query.has_state(task));
        let fails = |task: &&ListedTask| match task {
            ListedTask::Open(task) => recovery::fate(task) == Some(recovery::FAILS),
            ListedTask::Ended(_) => false,
        };
        let fail_if_lost = tasks.iter().filter(fails).count();
        query.order(&mut tasks, now_ms);
        let (total, limit) = (tasks.len(), query.limit());
        let page = tasks.iter().skip(query.offset).take(limit);
        let page: Vec<&ListedTask> = page.collect();
        let acks = self
            .acks(page.iter().filter_map(|task| task.ended()))
            .await?;
        let page: Vec<Value> = page.iter().map(|task| task.line(now_ms, &acks)).collect();
        let next = query.offset.saturating_add(page.len());
        Ok(json!({
            "now": crate::base::utc::rfc3339(now_ms),
            "counts": counts,
            "fail_if_lost": fail_if_lost,
            "total": total,
            "next_offset": (next < total).then_some(next),
            "partial": is_partial,
            "more_ended": is_more,
            "history": self.has_history(),
            "tasks": page,
        }))
    }

    /// One task, by its id or a beginning of it that no other task has.
    pub(super) async fn show(&self, id: &str, query: &str) -> Result<Value, TaskActionError> {
        let wants_tree = wants_tree(query).map_err(TaskActionError::Wrong)?;
        let id = self.id_of(id).await?;
        let Some(loaded) = self.runner().ledger().load(id).await? else {
            // The history keeps it longer than the store keeps its record.
            let ended = self.ended_like(&id.to_string()).await?;
            let ended = ended.first().ok_or(TaskActionError::Unknown)?;
            let acks = self.acks(std::iter::once(ended)).await?;
            return Ok(summary::kept(ended, acks.get(&id)));
        };
        let task = &loaded.task;
        let (mut request, mut result) = (None, None);
        // The payloads lie beside the record, so each of them costs a read of its own.
        if self.show_payloads {
            let runner = self.runner();
            let ledger = runner.ledger();
            request = ledger.load_request(task.id).await?;
            result = ledger.load_kept(task).await?;
        }
        let payloads = self.show_payloads.then(|| Payloads {
            request: text(request.as_ref()),
            result: text(result.as_ref()),
        });
        let now_ms = self.now_ms();
        let usual = self.runner().learned().tool(&task.name);
        let shown = Shown {
            now_ms,
            payloads,
            usual: usual.as_ref(),
        };
        let mut whole = summary::whole(task, shown);
        let ended = EndedTask::of(task);
        let acks = self.acks(ended.iter()).await?;
        if let (Some(ack), Some(members)) = (acks.get(&id), whole.as_object_mut()) {
            members.insert("acknowledged".into(), summary::acknowledged(ack));
        }
        // It costs a look at all open tasks.
        if wants_tree && let Some(members) = whole.as_object_mut() {
            members.insert("related".into(), self.related_to(task).await);
            members.insert("named_by".into(), self.naming(task.id).await?);
        }
        Ok(whole)
    }

    /// Cancels a task as its client could, and also the tasks that name it if the query asks for that.
    pub(super) async fn cancel(
        &self,
        id: &str,
        query: &str,
        by: CancelledBy,
    ) -> Result<Done, TaskActionError> {
        if wants_tree(query).map_err(TaskActionError::Wrong)? {
            return self.cancel_tree(id, &by).await;
        }
        let loaded = self.find(id).await?;
        let answer = self.cancel_loaded(&loaded, &by).await?;
        Ok(Done {
            tasks: vec![loaded.task.id],
            answer,
        })
    }

    async fn cancel_loaded(
        &self,
        loaded: &Loaded,
        by: &CancelledBy,
    ) -> Result<Value, TaskActionError> {
        let (id, caller) = (loaded.task.id, loaded.task.caller);
        let event = TaskEvent::Cancel { by: by.clone() };
        match self.runner().ledger().apply(loaded, event).await {
            // The owner sees the change and tells the server.
            Ok((cancelled, _)) => Ok(summary::line(&cancelled.task, self.now_ms())),
            Err(ApplyError::Rejected(_, stands)) => {
                let state = stands.task.status().word();
                Err(TaskActionError::Conflict(format!(
                    "the task has ended: {state}"
                )))
            }
            Err(ApplyError::Gone) => Err(TaskActionError::Unknown),
            Err(ApplyError::Store(error)) => {
                // The cancel cannot be recorded now. The call stops at least, if this replica carries it.
                self.runner().stop(id, &caller, by);
                Err(error.into())
            }
        }
    }

    /// Answers open questions of a task, in place of its client. `body`: an object with an answer for each key.
    pub(super) async fn answer(&self, id: &str, body: &Bytes) -> Result<Done, TaskActionError> {
        let answers = read_answers(body)?;
        let loaded = self.find(id).await?;
        check_answers(&loaded.task, &answers)?;
        let id = loaded.task.id;
        let answering = self
            .runner()
            .answer(
                loaded,
                answers,
                (AnsweredBy::Operator, Forwarded::default()),
            )
            .await;
        answering.map_err(|error| match error {
            AnswerError::Busy => {
                TaskActionError::Unavailable("this replica takes no calls now".into())
            }
            AnswerError::Gone => TaskActionError::Unknown,
            AnswerError::Store(error) => error.into(),
        })?;
        // The answer, or another replica meanwhile, has changed the record, so it is read again.
        let now = self.runner().ledger().load(id).await?;
        let now = now.ok_or(TaskActionError::Unknown)?;
        Ok(Done {
            tasks: vec![id],
            answer: summary::line(&now.task, self.now_ms()),
        })
    }

    fn runner(&self) -> Arc<Runner> {
        Arc::clone(&self.runner.borrow())
    }

    fn now_ms(&self) -> u64 {
        self.runner().ledger().now_ms()
    }

    async fn find(&self, text: &str) -> Result<Loaded, TaskActionError> {
        let id = self.id_of(text).await?;
        let found = self.runner().ledger().load(id).await?;
        found.ok_or(TaskActionError::Unknown)
    }

    /// The id that is written here, or the one known id that begins like this, as the log writes it.
    async fn id_of(&self, text: &str) -> Result<TaskId, TaskActionError> {
        if let Some(id) = TaskId::parse(text) {
            return Ok(id);
        }
        let beginning = beginning(text).map_err(TaskActionError::Wrong)?;
        let (mut known, _) = self.open().await?;
        known.retain(|id| id.to_string().starts_with(&beginning));
        known.extend(
            self.ended_like(&beginning)
                .await?
                .iter()
                .map(|ended| ended.id),
        );
        known.sort_unstable();
        known.dedup();
        match known.as_slice() {
            [] => Err(TaskActionError::UnknownBeginning),
            [id] => Ok(*id),
            _ => Err(TaskActionError::Conflict(format!(
                "several tasks begin with {beginning}; write more of the id"
            ))),
        }
    }

    /// The ids of all open tasks, and whether there are more than were looked at.
    async fn open(&self) -> Result<(Vec<TaskId>, bool), TaskActionError> {
        let runner = self.runner();
        let store = runner.ledger().store();
        let mut known: Vec<TaskId> = Vec::new();
        let mut is_partial = false;
        for look in 0..LOOKS {
            let mut found = store.due(u64::MAX, TASKS_MAX).await?;
            is_partial |= found.len() >= TASKS_MAX;
            found.sort_unstable();
            // A store on one server shows the same in each look.
            if look > 0 && !found.is_empty() && found == known {
                break;
            }
            known.extend(found);
            known.sort_unstable();
            known.dedup();
        }
        // Several looks together may find more tasks than one list reads.
        known.truncate(TASKS_MAX);
        Ok((known, is_partial))
    }

    /// The records of all open tasks, and whether there are more than were looked at.
    async fn read_open(&self) -> Result<(Vec<Task>, bool), TaskActionError> {
        let (ids, is_partial) = self.open().await?;
        let runner = self.runner();
        let ledger = runner.ledger();
        let mut reading = stream::iter(ids)
            .map(|id| ledger.load(id))
            .buffer_unordered(READ_AT_ONCE);
        let mut tasks = Vec::new();
        while let Some(found) = reading.next().await {
            match found {
                // A task that has ended is in the index while receivers must be notified of it.
                Ok(found) => tasks.extend(
                    found
                        .map(|loaded| loaded.task)
                        .filter(|task| !task.is_ended()),
                ),
                // One record that cannot be read does not hide the others.
                Err(StoreError::Corrupt(_) | StoreError::Newer | StoreError::UnknownKey) => {}
                // A list without these tasks would look complete.
                Err(error @ (StoreError::Unavailable(_) | StoreError::Full)) => {
                    return Err(error.into());
                }
            }
        }
        Ok((tasks, is_partial))
    }
}

fn read_answers(body: &Bytes) -> Result<InputResponses, TaskActionError> {
    let text = std::str::from_utf8(body).ok();
    let raw = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    let answers = raw.and_then(input::responses_of);
    answers
        .filter(|answers| !answers.is_empty())
        .ok_or_else(|| {
            let why = "the body must be an object with an answer for each key, such as \
                   {\"KEY\": {\"action\": \"accept\", \"content\": {}}}";
            TaskActionError::Wrong(why.into())
        })
}

/// Refuses answers to questions that are not open, and answers of another shape than the question asks for.
fn check_answers(task: &Task, answers: &InputResponses) -> Result<(), TaskActionError> {
    let open: Vec<&str> = task
        .open_questions()
        .map(|(question, _)| &*question.key)
        .collect();
    if open.is_empty() {
        let state = task.status().word();
        return Err(TaskActionError::Conflict(format!(
            "the task asks nothing: {state}"
        )));
    }
    if let Some(key) = answers.keys().find(|key| !open.contains(&&***key)) {
        let open = open.join(", ");
        return Err(TaskActionError::Conflict(format!(
            "{key} is no open question; open are {open}"
        )));
    }
    // All answers are checked before one is taken, so that a mistake changes nothing.
    for (question, request) in task.open_questions() {
        if let Some(answer) = answers.get(&question.key)
            && !input::answers(request, answer)
        {
            let key = &question.key;
            return Err(TaskActionError::Wrong(format!(
                "the answer to {key} has not the shape that was asked for"
            )));
        }
        if let Some(answer) = answers.get(&question.key)
            && let Some(wrong) = wrong_name(request, answer)
        {
            let key = &question.key;
            return Err(TaskActionError::Wrong(format!(
                "the answer to {key} {wrong}"
            )));
        }
    }
    Ok(())
}

/// A misspelt field of an operator's answer. A client's own answer goes to the server as it is.
fn wrong_name(request: &RawValue, answer: &RawValue) -> Option<String> {
    let answer: Value = serde_json::from_str(answer.get()).ok()?;
    let request: Value = serde_json::from_str(request.get()).ok()?;
    // Only an accepted answer has content that counts.
    let content = answer
        .get("content")
        .filter(|_| answer.get("action").is_some_and(|it| it == "accept"))?;
    elicitation::wrong_name(request.get("params")?, content)
}

fn text(bytes: Option<&Bytes>) -> Option<&str> {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok())
}
