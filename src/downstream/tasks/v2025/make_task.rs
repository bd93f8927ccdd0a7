//! `tools/call` with `params.task`: a task from the start.

use std::sync::Arc;
use std::time::Duration;

use hyper::Response;
use serde_json::value::RawValue;

use super::{delivery, progress};
use crate::downstream::body::Body;
use crate::downstream::claims;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::created;
use crate::runner::CallSpec;
use crate::runner::claim::ClaimError;
use crate::runner::responder::{CallAnswer, DeliveryGuard, Reply};
use crate::task::id::TaskId;
use crate::task::state::Status;

/// Makes a task of a call, and responds with the task.
pub(in crate::downstream) async fn make_task(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    mut call: CallSpec,
) -> Response<Body> {
    let id = request.id.get();
    // Its client gets progress once it has the task.
    call.progress_token = None;
    let (made, guard) = match make(proxy, by.session, call, &request.params).await {
        Ok(made) => made,
        Err(why) => return why.answer(request.id).on_session().into_response(),
    };
    // The answer itself has the status `working`, so only another status is news.
    delivery::follow(proxy, by, made.id, Status::Working);
    // A client that goes away before the answer was written may not have the task: the guard cancels it.
    Rpc::result(id, &made.created).guarded(Some(guard))
}

/// A task that was made.
struct Made {
    id: TaskId,
    /// `CreateTaskResult`.
    created: String,
}

/// Why there is no task.
enum MakeTaskError {
    Refused(ClaimError),
    /// With an error; or with what the same call came to, which was none before and has ended.
    Answered(CallAnswer),
    Lost,
}

impl MakeTaskError {
    fn answer(self, id: &RawValue) -> Rpc {
        match self {
            Self::Refused(why) => claims::refused(id, &why),
            Self::Answered(answer) => Rpc::answer(id.get(), answer),
            Self::Lost => Rpc::abandoned(id.get()),
        }
    }
}

async fn make(
    proxy: &Arc<Proxy>,
    by: Option<SessionKey>,
    call: CallSpec,
    params: &Object<'_>,
) -> Result<(Made, DeliveryGuard), MakeTaskError> {
    let lifetime = Duration::from_millis(call.terms.rule.max_duration_ms);
    let begun = claims::begin(proxy, call).await;
    let mut client = begun.map_err(MakeTaskError::Refused)?;
    loop {
        match client.next().await {
            Some(Reply::Answer(CallAnswer::Result(result))) => {
                let Some(made) = made(&result) else {
                    return Err(MakeTaskError::Answered(CallAnswer::Result(result)));
                };
                // Stored before the client gets the task: its next request may come to another replica.
                if let Some(token) = progress::token(params) {
                    let read = progress::TaskReader { task: made.id, by };
                    progress::remember(proxy, read, &token, lifetime).await;
                }
                return Ok((made, client.into_guard()));
            }
            Some(Reply::Answer(answer)) => return Err(MakeTaskError::Answered(answer)),
            // The client was promised no progress before it had the task.
            Some(Reply::Relay(_)) => {}
            None => return Err(MakeTaskError::Lost),
        }
    }
}

fn made(result: &str) -> Option<Made> {
    let object = Object::parse(result).ok()?;
    // The result of a legacy client's call has none.
    object.get("resultType")?;
    let id = object.get_str("taskId")?;
    Some(Made {
        id: TaskId::parse(&id)?,
        created: created(result)?,
    })
}
