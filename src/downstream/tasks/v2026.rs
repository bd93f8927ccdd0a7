//! `tasks/get`, `tasks/update`, `tasks/cancel` of 2026-07-28.

use hyper::HeaderMap;

use super::refusal::{Refusal, task_id};
use super::service::{ANSWER_BYTES_MAX, TaskError};
use crate::downstream::inbound::request::Modern;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::error::RpcError;
use crate::mcp::input::{self, InputResponses};
use crate::mcp::json::Object;
use crate::task::state::Task;
use crate::task::view;

const ACKNOWLEDGED: &str = r#"{"resultType":"complete"}"#;

/// The answer to a task request.
pub(in crate::downstream) enum TaskAnswer {
    Known(Rpc),
    /// The store does not know the task.
    Unknown(Rpc),
}

impl Proxy {
    pub(in crate::downstream) async fn tasks(
        &self,
        modern: &Modern<'_>,
        by: &Requester,
        headers: &HeaderMap,
    ) -> TaskAnswer {
        let id = modern.request.id.get();
        // Checked before the id is looked up: a client that cannot read tasks learns nothing of them.
        if !modern.meta.declares_tasks {
            return TaskAnswer::Known(Rpc::error(id, &RpcError::tasks_required()));
        }
        let params = &modern.request.params;
        let answered = match &*modern.request.method {
            "tasks/get" => self.get(params, by).await,
            "tasks/update" => self.update(params, by, headers).await,
            "tasks/cancel" => self.cancel(params, by).await,
            _ => Err(RpcError::method_not_found().into()),
        };
        TaskAnswer::Known(match answered {
            Ok(result) => Rpc::result(id, &result),
            Err(Refusal::Request(error)) => Rpc::error(id, &error),
            Err(Refusal::Task(TaskError::StoreUnavailable)) => Rpc::store_unavailable(id),
            Err(Refusal::Task(TaskError::Unreadable)) => Rpc::unreadable_task(id),
            Err(Refusal::Task(TaskError::Busy)) => Rpc::busy(id),
            Err(Refusal::Task(TaskError::Unknown)) => {
                return TaskAnswer::Unknown(Rpc::error(id, &RpcError::unknown_task()));
            }
        })
    }

    async fn get(&self, params: &Object<'_>, by: &Requester) -> Result<String, Refusal> {
        let found = self.poll(by, task_id(params)?).await?;
        let task = found.ok_or(TaskError::Unknown)?.task;
        // The poll reads only the record. A large result is an entry of its own in the store.
        let whole = self.tasks_of(&by.caller).whole(task).await?;
        let next_ms = self.runner.poll_interval_ms(&whole.task);
        let shown = whole.shown(&by.rules);
        Ok(view::get_result(&whole.task, shown.as_deref(), next_ms))
    }

    async fn update(
        &self,
        params: &Object<'_>,
        by: &Requester,
        headers: &HeaderMap,
    ) -> Result<String, Refusal> {
        let answers = answers(params)?;
        let tasks = self.tasks_for(by);
        let loaded = tasks.get(task_id(params)?).await?;
        check_shapes(&loaded.task, &answers)?;
        let from = self.forwarded(by, headers);
        tasks.answer(loaded, answers, from).await?;
        Ok(ACKNOWLEDGED.to_owned())
    }

    async fn cancel(&self, params: &Object<'_>, by: &Requester) -> Result<String, Refusal> {
        self.tasks_for(by).cancel(task_id(params)?).await?;
        Ok(ACKNOWLEDGED.to_owned())
    }
}

fn answers(params: &Object<'_>) -> Result<InputResponses, RpcError> {
    let answers = params.get("inputResponses");
    if answers.is_some_and(|raw| raw.get().len() > ANSWER_BYTES_MAX) {
        let error = "Invalid params: inputResponses is larger than 1 MiB";
        return Err(RpcError::invalid_params(error));
    }
    answers
        .and_then(input::responses_of)
        .filter(|answers| answers.len() <= input::QUESTIONS_MAX)
        .ok_or_else(|| RpcError::invalid_params("Invalid params: inputResponses must be an object"))
}

/// Checks that each answer has the shape that its open question asks for.
fn check_shapes(task: &Task, answers: &InputResponses) -> Result<(), RpcError> {
    let is_misshapen = task.open_questions().any(|(question, request)| {
        let answer = answers.get(&question.key);
        answer.is_some_and(|answer| !input::answers(request, answer))
    });
    if is_misshapen {
        return Err(RpcError::invalid_params(
            "Invalid params: an input response does not have the shape that was asked for",
        ));
    }
    Ok(())
}
