//! Which part answers a request: decided by its method, its headers and what it says.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};

use super::body::Body;
use super::call::{self, Asked};
use super::companion::desk::Desk;
use super::discover::{self, Listed};
use super::inbound::idempotency;
use super::inbound::requester::Requester;
use super::intake::{Read, read};
use super::intercept::{self, Intercepted, Modern};
use super::outbound::response::{self, Rpc, undecided};
use super::proxy::{Front, Shared};
use super::route::Door;
use super::subscriptions::listen;
use super::tasks::v2026::Answered;
use super::tools::{self, Known};
use super::{claims, companion, door, legacy, pass, related, sent};
use crate::mcp::error::RpcError;
use crate::mcp::version::Era;
use crate::mcp::{params, request};
use crate::runner::Announce;
use crate::task::policy::{Plan, Rule, plan};

// The futures of what is rare are boxed, so that what passes through stays small.

/// Answers one request. Dropped before it resolves, the client is gone: what it asked for is
/// cancelled unless it was announced.
pub(super) async fn handle(
    front: Shared,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    match door::open(&front, &mut parts, &body, peer) {
        Ok(Door::ProtectedResource) => pass::bare(&front, parts).await,
        Ok(Door::Mcp) => mcp(&front, parts, body).await,
        Err(refusal) => *refusal,
    }
}

async fn mcp(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    let era = intercept::era_by_headers(&parts.headers);
    // Sessions are the legacy world.
    if parts.method != Method::POST || era == Some(Era::Legacy) {
        if era == Some(Era::Modern) {
            return response::not_allowed("POST");
        }
        return legacy::answer(front, parts, body).await;
    }
    match read(front, body).await {
        Read::Whole(body) => {
            let bytes = body.len();
            sent::asked_with(bytes, post(front, parts, body).await)
        }
        Read::Refused(refusal) => refusal,
    }
}

/// A message of a client, whose body was read.
pub(super) async fn post(front: &Shared, parts: Parts, body: Bytes) -> Response<Body> {
    let era = intercept::era_by_headers(&parts.headers);
    let era = era.unwrap_or_else(|| intercept::era_by_body(&body));
    let by = front.requester(&parts, era);
    if era == Era::Legacy {
        return Box::pin(legacy::post(front, &by, parts, body)).await;
    }
    if let Some(refusal) = front.refuses_headers(&parts.headers) {
        return refusal;
    }
    match intercept::modern(&body, &parts.headers) {
        Ok(Intercepted::Request(modern)) => {
            if modern.meta.names_tasks {
                return Box::pin(answer_related(front, &by, parts, &body, &modern)).await;
            }
            answer(front, &by, &parts, &body, &modern).await
        }
        // No notification is defined from clients on this transport; none needs an answer.
        Ok(Intercepted::Notification) => response::empty(StatusCode::ACCEPTED),
        Err(request::Refused {
            id: Some(id),
            error,
        }) => Rpc::error(id.get(), &error).into_response(),
        Err(request::Refused { id: None, error }) => {
            response::refusal(StatusCode::BAD_REQUEST, &error)
        }
    }
}

/// Answers a request of a modern client that names tasks, as one that names none of ours.
async fn answer_related(
    front: &Shared,
    by: &Requester,
    mut parts: Parts,
    body: &Bytes,
    modern: &Modern<'_>,
) -> Response<Body> {
    let edited = front.without_our_ids(body, &modern.request.params).await;
    related::forget_length(&mut parts.headers);
    if let Some(edited) = edited
        && let Ok(Intercepted::Request(modern)) = intercept::modern(&edited, &parts.headers)
    {
        return answer(front, by, &parts, &edited, &modern).await;
    }
    let error = RpcError::internal("The request cannot be passed on");
    Rpc::error(modern.request.id.get(), &error).into_response()
}

async fn answer(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
) -> Response<Body> {
    match &*modern.request.method {
        "server/discover" => {
            let answer = discover::answer(front, modern, by);
            Box::pin(answer).await.into_response()
        }
        method if method.starts_with("tasks/") => {
            let answered = Box::pin(front.tasks(modern, by, &parts.headers)).await;
            match answered {
                Answered::Unknown(_) if front.passes_native_tasks() => {
                    forward(front, by, parts, body, modern).await
                }
                Answered::Known(rpc) | Answered::Unknown(rpc) => rpc.into_response(),
            }
        }
        "subscriptions/listen" => {
            let credentials = by.credentials.clone();
            Box::pin(listen::answer(front, modern, by.caller, credentials)).await
        }
        _ if front.upstream.has_address() => forward(front, by, parts, body, modern).await,
        _ => {
            let answer = Box::pin(forward(front, by, parts, body, modern)).await;
            discover::learn(front, modern, by).await;
            answer
        }
    }
}

/// Everything that the wrapped server answers: streamed past where it speaks the client's era and
/// nothing has to be read, carried by the runner where not.
async fn forward(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
) -> Response<Body> {
    let request = &modern.request;
    let is_call = request.method == "tools/call";
    let name = match is_call.then(|| tool_name(request)).transpose() {
        Ok(name) => name.unwrap_or_default(),
        Err(error) => return Rpc::error(request.id.get(), &error).into_response(),
    };
    let rule = front.rules.for_tool(&name).0;
    let desk = Box::pin(companion::desk(front, modern, by)).await;
    if let Some(desk) = &desk
        && let Some(tool) = desk.tool(&name)
    {
        return Box::pin(companion::call(desk, tool, request, &parts.headers)).await;
    }
    let plan = planned(rule, modern, desk.as_ref());
    if plan == Plan::Refuse {
        return Rpc::error(request.id.get(), &RpcError::tasks_required()).into_response();
    }
    let claim = is_call.then(|| idempotency::claim_of(modern, by, rule));
    let claim = match claim.transpose() {
        Ok(claim) => claim.flatten(),
        Err(error) => return Rpc::error(request.id.get(), &error).into_response(),
    };
    let era = match front.upstream.era(by.credentials.clone()).await {
        Ok(era) => era,
        Err(error) => return undecided(request.id, error),
    };
    let listed = Listed::of(front, modern, &by.caller);
    let may_pass = if is_call {
        claim.is_none() && may_stream_past(front, modern, rule, &name)
    } else {
        listed.is_none()
    };
    let can_pass = front.upstream.speaks_http() && may_pass;
    if era == Era::Modern && plan == Plan::Held && can_pass {
        return pass::again(front, parts, body.clone()).await;
    }
    if !is_known(front, era, &request.method) {
        return Rpc::error(request.id.get(), &RpcError::method_not_found()).into_response();
    }
    let mut asked = Asked {
        modern,
        headers: &parts.headers,
        by,
        client_headers: front.upstream.client_headers(&parts.headers),
        era,
        repeatable: false,
        // A task of ours must not become one of the server's.
        native_task: front.passes_native_tasks() && !matches!(plan, Plan::Always { .. }),
        announce: desk.map_or(Announce::Task, |desk| desk.announce()),
    };
    if is_call {
        match Box::pin(check_params(front, &asked, &name)).await {
            Ok(tool) => {
                asked.repeatable = tool.repeatable && front.settings.trust_annotations;
                asked.native_task |= tool.requires_task && era == Era::Legacy;
            }
            Err(error) => return Rpc::error(request.id.get(), &error).into_response(),
        }
    }
    if let Some(listed) = listed {
        return Box::pin(listed.answer(front, &asked, rule.clone())).await;
    }
    match claim {
        Some(claim) => Box::pin(claims::carry(front, &asked, claim, plan, rule.clone())).await,
        None => Box::pin(call::carry(front, &asked, plan, rule.clone())).await,
    }
}

/// Whether a call may go to the server as it came.
fn may_stream_past(front: &Front, modern: &Modern<'_>, rule: &Rule, tool: &str) -> bool {
    let (request, meta) = (&modern.request, &modern.meta);
    // What speaks of tasks must not reach the server: only then the body is edited.
    let hides_tasks = meta.declares_tasks && !front.settings.pass_native_tasks;
    let untouched = !hides_tasks && !request.params.contains("task");
    let has_heartbeat = call::heartbeat(modern, rule).is_some();
    // What streams past waits for nobody.
    untouched && !has_heartbeat && !call::has_state_of_ours(request) && !front.runner.limits(tool)
}

fn is_known(front: &Front, era: Era, method: &str) -> bool {
    match era {
        Era::Legacy => intercept::is_translated(method),
        // A program that speaks both eras would keep to the other one, for everybody on it.
        Era::Modern => front.upstream.speaks_http() || method != "initialize",
    }
}

fn planned(rule: &Rule, modern: &Modern<'_>, desk: Option<&Desk<'_>>) -> Plan {
    let (request, meta) = (&modern.request, &modern.meta);
    if request.method != "tools/call" {
        return Plan::Held;
    }
    let is_retry = request.params.contains("inputResponses");
    desk.map_or_else(
        || plan(rule, meta.declares_tasks, is_retry),
        |desk| desk.plan(rule),
    )
}

fn tool_name(request: &request::Request<'_>) -> Result<String, RpcError> {
    let arguments = request.params.get("arguments");
    if arguments.is_some_and(|raw| !crate::mcp::json::is_object(raw)) {
        return Err(RpcError::invalid_params(
            "Invalid params: arguments must be an object",
        ));
    }
    let name = request.params.get_str("name");
    name.map(std::borrow::Cow::into_owned)
        .ok_or_else(|| RpcError::invalid_params("Invalid params: name must be a string"))
}

/// The `Mcp-Param-*` headers against the tool's schema. A task is created before the server sees
/// the call, so what the server would refuse must be found here first. What else is known of the
/// tool.
async fn check_params(front: &Shared, asked: &Asked<'_>, name: &str) -> Result<Known, RpcError> {
    let capabilities = asked.modern.meta.capabilities.get();
    // A list that cannot be had leaves the check to the server itself.
    let Some(tools) = tools::listed(front, asked.by, capabilities).await else {
        return Ok(Known::default());
    };
    let Some(tool) = tools.get(name) else {
        return Ok(Known::default());
    };
    let arguments = asked.modern.request.params.get("arguments");
    params::check(tool, arguments, asked.headers).map_err(RpcError::header_mismatch)?;
    Ok(Known::of(tool))
}
