//! Which part answers a request: reads it once, asks the route, and does what the route says.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::body::Body;
use super::call::{self, Asked};
use super::companion::desk::Desk;
use super::inbound::access::Door;
use super::inbound::envelope::era_by_headers;
use super::inbound::request::{Inbound, Modern, ModernMessage};
use super::inbound::requester::Requester;
use super::inbound::route::modern::{CallTerms, Known, Route, route};
use super::intake::{Read, read};
use super::outbound::response::{self, Rpc, undecided};
use super::proxy::Shared;
use super::subscriptions::listen;
use super::tasks::v2026::Answered;
use super::{companion, discover, door, legacy, pass, related, sent, tools};
use crate::auth::challenge::Denied;
use crate::mcp::error::RpcError;
use crate::mcp::request::{self as mcp, Refused};
use crate::mcp::version::Era;

/// No answer takes longer: a timer must not be set to the end of time.
const END_MAX: Duration = Duration::from_hours(24 * 30);

const EXPIRED: Denied = Denied::Invalid("the token has expired");

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
        Ok(Door::Mcp) => match identify(&front, &mut parts).await {
            Ok(end) => until(end, pin!(mcp(&front, parts, body)), &front).await,
            Err(refusal) => *refusal,
        },
        Err(refusal) => *refusal,
    }
}

/// Answers until the credential of the client counts no more: then a client that still waits must show another one, and a
/// stream ends. A task stays.
async fn until(
    end: Option<Instant>,
    answering: Pin<&mut impl Future<Output = Response<Body>>>,
    front: &Shared,
) -> Response<Body> {
    let (Some(end), Some(auth)) = (end, &front.auth) else {
        return answering.await;
    };
    match timeout_at(end, answering).await {
        Ok(response) => sent::ends_at(end, response),
        Err(_elapsed) => response::denied(EXPIRED, auth.challenge()),
    }
}

/// Asks who the client is, where clients must say so, and until when that counts. Nothing of the body was read: a stranger
/// costs no memory.
async fn identify(
    front: &Shared,
    parts: &mut Parts,
) -> Result<Option<Instant>, Box<Response<Body>>> {
    let Some(auth) = &front.auth else {
        return Ok(None);
    };
    match auth.client(&parts.headers).await {
        Ok(identity) => {
            let end = identity.ends_at_ms.map(|end_ms| {
                let left = Duration::from_millis(end_ms.saturating_sub(auth.now_ms()));
                Instant::now() + left.min(END_MAX)
            });
            parts.extensions.insert(identity);
            Ok(end)
        }
        Err(denied) => Err(Box::new(response::denied(denied, auth.challenge()))),
    }
}

async fn mcp(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    if parts.method != Method::POST {
        // Sessions are the legacy world.
        if era_by_headers(&parts.headers) == Some(Era::Modern) {
            return response::not_allowed("POST");
        }
        return legacy::other(front, parts).await;
    }
    match read(front, body).await {
        Read::Whole(body) => {
            let message = Inbound::read(&body);
            sent::asked_with(body.len(), post(front, parts, &body, message).await)
        }
        Read::Refused(refusal) => refusal,
    }
}

/// A message of a client, whose body was read.
pub(super) async fn post(
    front: &Shared,
    parts: Parts,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    let era = era_by_headers(&parts.headers).unwrap_or_else(|| message.era());
    let by = front.requester(&parts, era);
    match era {
        Era::Legacy => Box::pin(legacy::post(front, &by, parts, body, message)).await,
        Era::Modern => modern(front, &by, parts, body, message).await,
    }
}

async fn modern(
    front: &Shared,
    by: &Requester,
    mut parts: Parts,
    body: &Bytes,
    message: Inbound<'_>,
) -> Response<Body> {
    if let Err(error) = front.check_headers(&parts.headers) {
        return response::refusal(StatusCode::BAD_REQUEST, &error);
    }
    let modern = match message.modern(&parts.headers) {
        Ok(ModernMessage::Request(modern)) => modern,
        // No notification is defined from clients on this transport; none needs an answer.
        Ok(ModernMessage::Notification) => return response::empty(StatusCode::ACCEPTED),
        Err(refused) => return unread(&refused),
    };
    if !modern.meta.names_tasks {
        return answer(front, by, &parts, body, &modern).await;
    }
    // The server does not hear of tasks of ours.
    let edited = Box::pin(front.without_our_ids(body, &modern.request.params)).await;
    let id = modern.request.id.to_owned();
    drop(modern);
    related::forget_length(&mut parts.headers);
    if let Some(edited) = edited
        && let Ok(ModernMessage::Request(modern)) = Inbound::read(&edited).modern(&parts.headers)
    {
        return Box::pin(answer(front, by, &parts, &edited, &modern)).await;
    }
    let error = RpcError::internal("The request cannot be passed on");
    Rpc::error(id.get(), &error).into_response()
}

/// The refusal of a message that is not in order.
fn unread(refused: &Refused) -> Response<Body> {
    match &refused.id {
        Some(id) => Rpc::error(id.get(), &refused.error).into_response(),
        None => response::refusal(StatusCode::BAD_REQUEST, &refused.error),
    }
}

/// Does with a modern client's request what the route says.
async fn answer(
    front: &Shared,
    by: &Requester,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
) -> Response<Body> {
    let mut known = known(front, by, &modern.request);
    let answered = loop {
        match route(modern, by, &known) {
            Route::Ask(question) => {
                let capabilities = modern.meta.capabilities.get();
                let asking = tools::ask(front, by, capabilities, question, &mut known.server);
                if let Err(error) = Box::pin(asking).await {
                    break undecided(modern.request.id, error);
                }
            }
            Route::Pass => break pass::again(front, parts, body.clone()).await,
            Route::Refuse(error) => {
                break Rpc::error(modern.request.id.get(), &error).into_response();
            }
            Route::Discover => {
                return Box::pin(discover::answer(front, modern, by))
                    .await
                    .into_response();
            }
            Route::Task => match Box::pin(front.tasks(modern, by, modern.headers)).await {
                Answered::Unknown(_) if front.passes_native_tasks() => known.is_no_task_here = true,
                Answered::Known(rpc) | Answered::Unknown(rpc) => return rpc.into_response(),
            },
            Route::Listen => {
                let credentials = by.credentials.clone();
                return Box::pin(listen::answer(front, modern, by.caller, credentials)).await;
            }
            Route::Companion(tool, names, companion) => {
                let desk = Desk::of(front, by, companion, names);
                let calling = companion::call(&desk, tool, &modern.request, modern.headers);
                break Box::pin(calling).await;
            }
            Route::List(how, spec) => {
                let asked = asked(front, by, modern, spec);
                break Box::pin(discover::list(front, &asked, how)).await;
            }
            Route::Call(spec) => {
                let asked = asked(front, by, modern, spec);
                break Box::pin(call::carry(front, &asked)).await;
            }
        }
    };
    if !front.upstream.has_address() {
        discover::learn(front, modern, by).await;
    }
    answered
}

fn known<'k>(front: &'k Shared, by: &Requester, request: &mcp::Request<'_>) -> Known<'k> {
    let tool = request.name().filter(|_| request.method == "tools/call");
    Known {
        rules: &front.rules,
        keeps_native_tasks: front.settings.pass_native_tasks,
        trusts_annotations: front.settings.trust_annotations,
        companion: front.companion.as_ref(),
        server: tools::known(front),
        had_stand_in: front.stand_ins.was_told(&by.caller),
        is_limited: tool.is_some_and(|tool| front.runner.limits(&tool)),
        is_no_task_here: false,
    }
}

fn asked<'a>(
    front: &Shared,
    by: &'a Requester,
    modern: &'a Modern<'a>,
    spec: CallTerms<'a>,
) -> Asked<'a> {
    Asked {
        modern,
        by,
        client_headers: front.upstream.client_headers(modern.headers),
        spec,
    }
}
