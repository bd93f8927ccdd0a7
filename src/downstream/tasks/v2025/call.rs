//! `tools/call` with `params.task`: a task from the start.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::{delivery, progress};
use crate::downstream::body::Body;
use crate::downstream::inbound::idempotency;
use crate::downstream::inbound::requester::{ASKABLE, Requester};
use crate::downstream::legacy::pushes::SessionKey;
use crate::downstream::outbound::response::{Rpc, undecided};
use crate::downstream::proxy::Shared;
use crate::downstream::{claims, tools};
use crate::mcp::error::{RpcError, code};
use crate::mcp::json::{Object, is_object};
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::{Wish, created};
use crate::mcp::tools::{OwnTask, Tool};
use crate::mcp::version::Era;
use crate::runner::claim::{CallClaim, NotClaimed};
use crate::runner::responder::{CallAnswer, DeliveryGuard, Reply};
use crate::runner::{Announce, CallSpec};
use crate::task::id::TaskId;
use crate::task::policy::{InputWhen, Mode, Plan, Rule};
use crate::task::state::Status;
use crate::upstream::Outgoing;

/// A finished task stays so long at least, however short a `ttl` is asked for.
const RETENTION_MS_MIN: u64 = 1_000;

/// And at most so many times as long as the operator's own `retention`.
const RETENTIONS_MAX: u64 = 24;

/// Of two members of one name, two readers could take different ones.
const RESERVED: [&str; 4] = ["_meta", "name", "arguments", "task"];

/// A call as it goes to the server.
#[derive(Debug)]
pub(in crate::downstream) struct Sent {
    pub(in crate::downstream) era: Era,
    pub(in crate::downstream) outgoing: Outgoing,
}

/// The call goes to the server on the client's own session. `None`: the server is to say that it
/// knows no such session.
pub(super) fn on_session(
    front: &Shared,
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
) -> Option<Sent> {
    let caller = *by.caller.as_bytes();
    let session = front.upstream.client_session(headers, caller)?;
    let outgoing = Outgoing {
        caller,
        credentials: by.credentials.clone(),
        method: request.method.as_ref().into(),
        params: request.params_text.into(),
        capabilities: ASKABLE.into(),
        name: request.params.get_str("name").as_deref().map(Arc::from),
        param_headers: [].into(),
        headers: front.upstream.client_headers(headers),
        wants_progress: true,
        log_level: None,
        retry: None,
        answer_patience: None,
        native_task: false,
        pin: Some(session.pin()),
    };
    Some(Sent {
        era: Era::Legacy,
        outgoing,
    })
}

pub(super) async fn answer(
    front: &Shared,
    by: &Requester,
    request: &Request<'_>,
    send: impl FnOnce() -> Option<Sent>,
) -> Option<Response<Body>> {
    let id = request.id.get();
    let refuse = |error: &RpcError| Some(Rpc::error(id, error).on_session().into_response());
    let name = request.params.get_str("name")?;
    let rule = front.rules.for_tool(&name).0;
    let wish = match Wish::of(&request.params) {
        Ok(Some(wish)) => wish,
        Ok(None) if rule.require_tasks && rule.mode != Mode::Never => {
            return refuse(&only_as_task());
        }
        Ok(None) => return None,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = check(&request.params) {
        return refuse(&error);
    }
    if let Err(error) = front.upstream.era(by.credentials.clone()).await {
        return Some(undecided(request.id, error));
    }
    let known = known(front, by, &name).await;
    let is_theirs = front.settings.pass_native_tasks && known.own_task != OwnTask::Never;
    if is_theirs {
        return None;
    }
    if rule.mode == Mode::Never && !known.requires_task() {
        return refuse(&never_a_task());
    }
    let claim = match idempotency::claim_of_legacy(request, by, rule) {
        Ok(claim) => claim,
        Err(error) => return refuse(&error),
    };
    let Some(Sent { era, mut outgoing }) = send() else {
        // Passed on, the call would run without a task.
        let must_not_pass = rule.require_tasks && front.upstream.speaks_http();
        return must_not_pass.then(|| Rpc::busy(id).on_session().into_response());
    };
    idempotency::hide_key(&mut outgoing);
    outgoing.native_task = known.requires_task() && era == Era::Legacy;
    outgoing.answer_patience = rule.input_timeout_ms.map(Duration::from_millis);
    let call = CallSpec {
        caller: by.caller,
        era,
        client_era: Era::Legacy,
        announce: Announce::Task,
        digest: idempotency::digest(request),
        outgoing,
        rule: Rule {
            retention_ms: retention_ms(wish, rule),
            ..rule.clone()
        },
        plan: Plan::Always {
            input: InputWhen::InTask,
        },
        progress_token: None,
        repeatable: known.repeatable && front.settings.trust_annotations,
        listed: by.has_credentials,
        session: None,
    };
    let (made, guard) = match make(front, by.session, (claim, call), &request.params).await {
        Ok(made) => made,
        Err(why) => return Some(why.answer(request.id).on_session().into_response()),
    };
    delivery::follow(front, by, made.id, Status::Working);
    Some(Rpc::result(id, &made.created).guarded(Some(guard)))
}

/// A task that was made.
struct Made {
    id: TaskId,
    /// `CreateTaskResult`.
    created: String,
}

/// Why there is no task.
enum NotMade {
    Refused(NotClaimed),
    /// With an error; or with what the same call came to, which was none before and has ended.
    Answered(CallAnswer),
    Lost,
}

impl NotMade {
    fn answer(self, id: &RawValue) -> Rpc {
        match self {
            Self::Refused(why) => claims::refused(id, &why),
            Self::Answered(answer) => Rpc::answer(id.get(), answer),
            Self::Lost => Rpc::abandoned(id.get()),
        }
    }
}

async fn make(
    front: &Shared,
    by: Option<SessionKey>,
    (claim, call): (Option<CallClaim>, CallSpec),
    params: &Object<'_>,
) -> Result<(Made, DeliveryGuard), NotMade> {
    let lifetime = Duration::from_millis(call.rule.max_duration_ms);
    let begun = claims::begin(front, claim, call).await;
    let mut client = begun.map_err(NotMade::Refused)?;
    loop {
        match client.next().await {
            Some(Reply::Answer(CallAnswer::Result(result))) => {
                let Some(made) = made(&result) else {
                    return Err(NotMade::Answered(CallAnswer::Result(result)));
                };
                if let Some(token) = progress::token(params) {
                    let read = progress::TaskReader { task: made.id, by };
                    progress::remember(front, read, &token, lifetime).await;
                }
                return Ok((made, client.into_guard()));
            }
            Some(Reply::Answer(answer)) => return Err(NotMade::Answered(answer)),
            // Nobody was promised any before the task.
            Some(Reply::Relay(_)) => {}
            None => return Err(NotMade::Lost),
        }
    }
}

fn made(result: &RawValue) -> Option<Made> {
    let object = Object::parse(result.get()).ok()?;
    // The result of a legacy client's call has none.
    object.get("resultType")?;
    let id = object.get_str("taskId")?;
    Some(Made {
        id: TaskId::parse(&id)?,
        created: created(result)?,
    })
}

fn check(params: &Object<'_>) -> Result<(), RpcError> {
    if params.is_ambiguous(&RESERVED) {
        return Err(RpcError::invalid_params(
            "Invalid params: ambiguous members",
        ));
    }
    if params.get("arguments").is_some_and(|raw| !is_object(raw)) {
        return Err(RpcError::invalid_params(
            "Invalid params: arguments must be an object",
        ));
    }
    Ok(())
}

/// What the server says of the tool. A list that cannot be had says nothing.
async fn known(front: &Shared, by: &Requester, name: &str) -> Tool {
    let tools = tools::listed(front, by, ASKABLE).await;
    let known = tools.as_ref().and_then(|tools| tools.get(name));
    known.cloned().unwrap_or_default()
}

/// How long the finished task stays: what was asked for, within limits.
fn retention_ms(wish: Wish, rule: &Rule) -> u64 {
    let longest = rule.retention_ms.saturating_mul(RETENTIONS_MAX);
    wish.ttl_ms.map_or(rule.retention_ms, |wanted| {
        wanted.clamp(RETENTION_MS_MIN, longest.max(RETENTION_MS_MIN))
    })
}

/// The code is the specification's (2025-11-25, Tasks, Tool-Level Negotiation).
pub(in crate::downstream) fn only_as_task() -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        "Method not found: this tool runs as a task only, which params.task asks for",
    )
}

fn never_a_task() -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        "Method not found: this tool does not run as a task",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wanted_ttl_is_kept_within_limits() {
        let rule = Rule {
            retention_ms: 10_000,
            ..Rule::default()
        };
        let of = |ttl_ms| retention_ms(Wish { ttl_ms }, &rule);
        assert_eq!(of(None), 10_000);
        assert_eq!(of(Some(0)), 1_000);
        assert_eq!(of(Some(60_000)), 60_000);
        assert_eq!(of(Some(u64::MAX)), 240_000);
    }
}
