//! `tools/call` with `params.task`: a task from the start.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::{delivery, progress};
use crate::downstream::body::Body;
use crate::downstream::inbound::idempotency;
use crate::downstream::inbound::requester::{ASKABLE, Requester};
use crate::downstream::inbound::route::call::{KnownOfCalls, KnownSession, TaskSpec};
use crate::downstream::inbound::session_key::SessionKey;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::downstream::{claims, tools};
use crate::mcp::headers::SESSION_ID;
use crate::mcp::json::Object;
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::created;
use crate::mcp::version::Era;
use crate::runner::claim::{CallClaim, NotClaimed};
use crate::runner::responder::{CallAnswer, DeliveryGuard, Reply};
use crate::runner::{Announce, CallSpec};
use crate::task::id::TaskId;
use crate::task::plan::Plan;
use crate::task::policy::InputWhen;
use crate::task::state::Status;
use crate::upstream::{Pin, UpstreamRequest};

/// A call as it goes to the server.
#[derive(Debug)]
pub(in crate::downstream) struct OutgoingCall {
    pub(in crate::downstream) era: Era,
    pub(in crate::downstream) outgoing: UpstreamRequest,
}

/// The call as it goes to the server on the client's own session.
pub(in crate::downstream) fn on_session(
    proxy: &Arc<Proxy>,
    by: &Requester,
    headers: &HeaderMap,
    request: &Request<'_>,
    pin: Option<Pin>,
) -> OutgoingCall {
    let forwarded = proxy.forwarded(by, headers);
    let name = request.params.get_str("name").as_deref().map(Arc::from);
    let caller = *by.caller.as_bytes();
    let outgoing = UpstreamRequest::new(caller, request.method.as_ref(), request.params_text)
        .declaring(ASKABLE)
        .forwarding(forwarded)
        .described_by(name, [].into())
        .with_progress(true)
        .on(pin);
    OutgoingCall {
        era: Era::Legacy,
        outgoing,
    }
}

/// Returns the known facts for the route of a call. `speaks_of_tasks`: its session does.
pub(in crate::downstream) fn known_of_calls<'k>(
    proxy: &'k Arc<Proxy>,
    (by, headers): (&'k Requester, &HeaderMap),
    request: &Request<'_>,
    speaks_of_tasks: bool,
) -> KnownOfCalls<'k> {
    let tool = request.params.get_str("name").unwrap_or_default();
    KnownOfCalls {
        rules: &by.rules,
        keeps_native_tasks: proxy.settings.pass_native_tasks,
        trusts_annotations: proxy.settings.trust_annotations,
        companion: proxy.companion_of(by),
        speaks_of_tasks,
        is_limited: by.rules.limits(&tool),
        requires_task: proxy.native_tools.requires_task(&tool),
        names_session: headers.contains_key(SESSION_ID),
        session: KnownSession::NotAsked,
        server: tools::known(proxy),
    }
}

/// Makes a task of a call. `sent`: how the call goes to the server.
pub(in crate::downstream) async fn make_task(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    spec: TaskSpec,
    OutgoingCall { era, mut outgoing }: OutgoingCall,
) -> Response<Body> {
    let id = request.id.get();
    idempotency::hide_key(&mut outgoing);
    outgoing.native_task = spec.requires_task && era == Era::Legacy;
    outgoing.answer_patience = spec.rule.input_timeout_ms.map(Duration::from_millis);
    let call = CallSpec {
        caller: by.caller,
        label: by.label(),
        era: Some(era),
        client_era: Era::Legacy,
        announce: Announce::Task,
        outgoing,
        rule: spec.rule,
        plan: Plan::Always {
            input: InputWhen::InTask,
        },
        progress_token: None,
        repeatable: spec.repeatable,
        listed: by.list,
        session: None,
        related: by.related.clone(),
        span: by.span.clone(),
    };
    let (made, guard) = match make(proxy, by.session, (spec.claim, call), &request.params).await {
        Ok(made) => made,
        Err(why) => return why.answer(request.id).on_session().into_response(),
    };
    delivery::follow(proxy, by, made.id, Status::Working);
    Rpc::result(id, &made.created).guarded(Some(guard))
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
    proxy: &Arc<Proxy>,
    by: Option<SessionKey>,
    (claim, call): (Option<CallClaim>, CallSpec),
    params: &Object<'_>,
) -> Result<(Made, DeliveryGuard), NotMade> {
    let lifetime = Duration::from_millis(call.rule.max_duration_ms);
    let begun = claims::begin(proxy, claim, call).await;
    let mut client = begun.map_err(NotMade::Refused)?;
    loop {
        match client.next().await {
            Some(Reply::Answer(CallAnswer::Result(result))) => {
                let Some(made) = made(&result) else {
                    return Err(NotMade::Answered(CallAnswer::Result(result)));
                };
                if let Some(token) = progress::token(params) {
                    let read = progress::TaskReader { task: made.id, by };
                    progress::remember(proxy, read, &token, lifetime).await;
                }
                return Ok((made, client.into_guard()));
            }
            Some(Reply::Answer(answer)) => return Err(NotMade::Answered(answer)),
            // The client was promised no progress before it had the task.
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
