//! `tasks/get`, `tasks/update`, `tasks/cancel`: answered from the store, on any replica.

use std::time::Duration;

use hyper::HeaderMap;

use super::inbound::request::Modern;
use super::inbound::requester::Requester;
use super::proxy::Front;
use super::reply::Rpc;
use crate::mcp::error::RpcError;
use crate::mcp::input;
use crate::runner::AnswerError;
use crate::store::StoreError;
use crate::store::ledger::{Loaded, NotApplied};
use crate::task::id::{Caller, TaskId};
use crate::task::machine::Event;
use crate::task::view;

const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

/// Answers to questions above this size are refused before they reach the store.
pub(super) const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

/// A store that takes longer than any of its commands may is away.
pub(super) const STORE_IS_AWAY: Duration = Duration::from_millis(600);

/// The answer to a task request.
pub(super) enum Answered {
    Known(Rpc),
    /// The store does not know the task.
    Unknown(Rpc),
}

/// Why there is no such answer.
pub(super) enum Refusal {
    Unknown,
    Error(RpcError),
    Store,
    /// Another replica, or this one later, can do it.
    Busy,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a task request met a store that does not answer");
        Self::Store
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Error(error)
    }
}

impl Front {
    pub(super) async fn tasks(
        &self,
        modern: &Modern<'_>,
        by: &Requester,
        headers: &HeaderMap,
    ) -> Answered {
        let (id, caller) = (modern.request.id.get(), by.caller);
        // Before the id is looked up: who cannot read tasks learns nothing of them.
        if !modern.meta.declares_tasks {
            return Answered::Known(Rpc::error(id, &RpcError::tasks_required()));
        }
        let answered = match &*modern.request.method {
            "tasks/get" => self.get(modern, caller).await,
            "tasks/update" => self.update(modern, by, headers).await,
            "tasks/cancel" => self.cancel(modern, caller).await,
            _ => Err(RpcError::method_not_found().into()),
        };
        Answered::Known(match answered {
            Ok(result) => Rpc::result(id, &result),
            Err(Refusal::Unknown) => {
                return Answered::Unknown(Rpc::error(id, &RpcError::unknown_task()));
            }
            Err(Refusal::Error(error)) => Rpc::error(id, &error),
            Err(Refusal::Store) => Rpc::store_unavailable(id),
            Err(Refusal::Busy) => Rpc::busy(id),
        })
    }

    async fn get(&self, modern: &Modern<'_>, caller: Caller) -> Result<String, Refusal> {
        let Loaded { task, .. } = self.find(modern, caller).await?;
        let ledger = self.runner.ledger();
        let kept = ledger.load_kept(&task).await?;
        let kept = kept
            .as_deref()
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        Ok(view::get_result(&task, kept, ledger.now_ms()))
    }

    async fn update(
        &self,
        modern: &Modern<'_>,
        by: &Requester,
        headers: &HeaderMap,
    ) -> Result<String, Refusal> {
        let params = &modern.request.params;
        let answers = params
            .get("inputResponses")
            .filter(|raw| raw.get().len() <= ANSWERS_BYTES_MAX)
            .and_then(input::responses_of)
            .filter(|answers| answers.len() <= input::QUESTIONS_MAX)
            .ok_or_else(|| {
                RpcError::invalid_params("Invalid params: inputResponses must be an object")
            })?;
        let loaded = self.find(modern, by.caller).await?;
        let misshapen = loaded.task.open_questions().any(|(question, request)| {
            answers
                .get(&question.key)
                .is_some_and(|answer| !input::answers(request, answer))
        });
        if misshapen {
            return Err(RpcError::invalid_params(
                "Invalid params: an input response does not have the shape that was asked for",
            )
            .into());
        }
        let from = self.forwarded(by, headers);
        match self.runner.answer(loaded, answers, from).await {
            Ok(()) => Ok(ACKNOWLEDGED.to_owned()),
            Err(AnswerError::Busy) => Err(Refusal::Busy),
            Err(AnswerError::Gone) => Err(Refusal::Unknown),
            Err(AnswerError::Store(error)) => Err(error.into()),
        }
    }

    /// A call that this replica carries is stopped also while the store is away.
    async fn cancel(&self, modern: &Modern<'_>, caller: Caller) -> Result<String, Refusal> {
        let committing = self.commit_cancel(modern, caller);
        tokio::pin!(committing);
        tokio::select! {
            answered = &mut committing => {
                // It may refuse at once.
                if let (Err(Refusal::Store), Ok(id)) = (&answered, named(modern)) {
                    self.runner.stop(id, &caller);
                }
                return answered;
            }
            () = tokio::time::sleep(STORE_IS_AWAY) => {}
        }
        if let Ok(id) = named(modern) {
            self.runner.stop(id, &caller);
        }
        committing.await
    }

    async fn commit_cancel(&self, modern: &Modern<'_>, caller: Caller) -> Result<String, Refusal> {
        let loaded = self.find(modern, caller).await?;
        match self
            .runner
            .ledger()
            .apply(&loaded, Event::Cancel { reason: None })
            .await
        {
            // The owner sees the change and tells the server; a task that has ended stays so.
            Ok(_) | Err(NotApplied::Rejected(..)) => Ok(ACKNOWLEDGED.to_owned()),
            Err(NotApplied::Gone) => Err(Refusal::Unknown),
            Err(NotApplied::Store(error)) => Err(error.into()),
        }
    }

    /// The task that the request names. Unknown, expired, unannounced and foreign tasks are one
    /// and the same to the caller.
    async fn find(&self, modern: &Modern<'_>, caller: Caller) -> Result<Loaded, Refusal> {
        self.find_by_id(named(modern)?, &caller)
            .await?
            .ok_or(Refusal::Unknown)
    }

    pub(super) async fn find_by_id(
        &self,
        id: TaskId,
        caller: &Caller,
    ) -> Result<Option<Loaded>, StoreError> {
        let found = self.find_wanted(id, caller).await?;
        Ok(found.filter(|found| found.task.announced))
    }

    /// The same, or a call with a record of which its clients know nothing.
    pub(super) async fn find_wanted(
        &self,
        id: TaskId,
        caller: &Caller,
    ) -> Result<Option<Loaded>, StoreError> {
        let loaded = self.runner.ledger().load(id).await?;
        Ok(loaded.filter(|loaded| loaded.task.is_wanted() && loaded.task.belongs_to(caller)))
    }
}

fn named(modern: &Modern<'_>) -> Result<TaskId, Refusal> {
    let text = modern
        .request
        .params
        .get_str("taskId")
        .ok_or_else(|| RpcError::invalid_params("Invalid params: taskId must be a string"))?;
    TaskId::parse(&text).ok_or(Refusal::Unknown)
}
