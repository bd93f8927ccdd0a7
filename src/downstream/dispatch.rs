//! The choice of the part that answers a request: reads the request once, asks the route, and follows the route.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::access_log::Accessed;
use super::body::Body;
use super::companion::tools::CompanionTools;
use super::durations::{Answered, Asked};
use super::giving_way::OpenConnection;
use super::inbound::access::Endpoint;
use super::inbound::envelope::era_by_headers;
use super::inbound::known_client;
use super::inbound::request::{Inbound, Modern, ModernMessage};
use super::inbound::requester::Requester;
use super::inbound::route::modern::{RequestFacts, Route, route};
use super::modern_call::{self, ModernCall};
use super::outbound::response::{self, Rpc, undecided};
use super::proxy::Proxy;
use super::related::{RedactedBody, forget_length};
use super::request_body::{ReadBody, read};
use super::response_body::CredentialLimits;
use super::subscriptions::listen;
use super::tasks::v2026::TaskAnswer;
use super::traced::{self, Traced};
use super::{
    companion, discover, edited, endpoint, events, large_results, metadata, passthrough,
    response_body, sessions, tools,
};
use crate::auth::challenge::Denied;
use crate::auth::identity::Identity;
use crate::mcp::error::RpcError;
use crate::mcp::headers::SESSION_ID;
use crate::mcp::request::{self as mcp, Refused};
use crate::mcp::version::Era;
use crate::runner::CallTerms;
use crate::runner::claim::CallClaim;
use crate::sharing::room::SMALL;
use crate::sharing::shares::Share;
use crate::task::clients::ClientTerms;
use crate::telemetry::traces::{self, SpanGuard};

/// No answer takes longer: a timer must not be set to the end of time.
const END_MAX: Duration = Duration::from_hours(24 * 30);

const EXPIRED: Denied = Denied::Invalid("the token has expired");

// The futures of rare requests are boxed, so that the future of a request that passes stays small: it is allocated for
// each request. For the same reason the head of a request is boxed.

/// Answers one request. If this is dropped before it resolves, the client is gone, and its call is cancelled unless
/// its task was announced. The other half is what the client's credential bounds of the response.
pub(super) fn handle(
    proxy: Arc<Proxy>,
    request: Request<Incoming>,
    connection: Arc<OpenConnection>,
) -> impl Future<Output = (Answered, CredentialLimits)> + Send {
    let (parts, body) = request.into_parts();
    to_endpoint(proxy, Box::new(parts), body, connection)
}

async fn to_endpoint(
    proxy: Arc<Proxy>,
    mut parts: Box<Parts>,
    body: Incoming,
    connection: Arc<OpenConnection>,
) -> (Answered, CredentialLimits) {
    let mut admitted = CredentialLimits::default();
    let opened = endpoint::open(&proxy, &mut parts, &body, connection.peer);
    let (mut response, asked) = match opened {
        Ok((Endpoint::ProtectedResource, _)) => {
            (Box::pin(metadata::answer(&proxy, parts)).await, None)
        }
        Ok((Endpoint::Mcp, is_local)) => match identify(&proxy, &mut parts).await {
            Ok((identity, bounds)) => {
                let client = RequestClient { identity, is_local };
                admitted = bounds;
                let end = admitted.end;
                let request = &mut admitted.request;
                // Only a whole request keeps its connection from giving way: one that comes byte by byte must not.
                let whole = || *request = Some(connection.is_asked());
                let answering = pin!(mcp(&proxy, parts, body, client, whole));
                until(end, answering, &proxy).await
            }
            Err(refusal) => (*refusal, None),
        },
        Err(refusal) => (*refusal, None),
    };
    // Answers of every part come by here, and any of them may carry a challenge of the server's.
    proxy.rewrite_challenges(response.headers_mut());
    ((response, asked), admitted)
}

/// Answers until the client's credential expires. Then a client that still waits gets 401. A task stays.
async fn until(
    end: Option<Instant>,
    answering: Pin<&mut impl Future<Output = Answered>>,
    proxy: &Arc<Proxy>,
) -> Answered {
    let (Some(end), Some(auth)) = (end, &proxy.auth) else {
        return answering.await;
    };
    match timeout_at(end, answering).await {
        Ok(answered) => answered,
        Err(_elapsed) => (proxy.denied(EXPIRED, auth), None),
    }
}

/// Checks the client's credential if `auth` is set, and that the client has not too many requests under way. Gives who the
/// client is. The body is not read before, so a client without a credential costs no memory.
async fn identify(
    proxy: &Arc<Proxy>,
    parts: &mut Parts,
) -> Result<(Option<Arc<Identity>>, CredentialLimits), Box<Response<Body>>> {
    let Some(auth) = &proxy.auth else {
        return Ok((None, CredentialLimits::default()));
    };
    let by_certificate = parts.extensions.remove::<Arc<Identity>>();
    match auth.client(&parts.headers, by_certificate).await {
        Ok(identity) => {
            let end = identity.ends_at_ms.map(|end_ms| {
                let left = Duration::from_millis(end_ms.saturating_sub(auth.now_ms()));
                Instant::now() + left.min(END_MAX)
            });
            if let Some(header) = proxy.upstream.caller_header() {
                // In place of what the client may have written there.
                parts.headers.insert(header, identity.name.clone());
            }
            let share = match &proxy.fair {
                Some(fair) => {
                    // Shares are counted by proven caller. By a header that is not checked, one client could have many.
                    let taken = fair.requests.take(identity.caller, 1);
                    Some(taken.ok_or_else(|| Box::new(response::too_many_requests()))?)
                }
                None => None,
            };
            let admitted = CredentialLimits {
                end,
                share,
                request: None,
            };
            Ok((Some(identity), admitted))
        }
        Err(denied) => Err(Box::new(proxy.denied(denied, auth))),
    }
}

/// The client of one request.
#[derive(Debug, Default)]
pub(super) struct RequestClient {
    /// Where clients must show one.
    pub(super) identity: Option<Arc<Identity>>,
    /// The request comes from this machine, and no proxy says that it passed it on.
    pub(super) is_local: bool,
}

/// Calls `whole` when the request is there whole.
async fn mcp(
    proxy: &Arc<Proxy>,
    parts: Box<Parts>,
    body: Incoming,
    client: RequestClient,
    whole: impl FnOnce(),
) -> Answered {
    if parts.method != Method::POST {
        // There is no body, so the request is whole.
        whole();
        // Only legacy clients have sessions.
        if era_by_headers(&parts.headers) == Some(Era::Modern) {
            return (response::not_allowed("POST"), None);
        }
        let answer = Box::pin(sessions::other(proxy, parts, client.identity)).await;
        return (answer, None);
    }
    let body = match read(proxy, body).await {
        ReadBody::Whole(body) => body,
        ReadBody::Refused(refusal) => return (refusal, None),
    };
    whole();
    // The body is in memory until the answer begins, and counts among the caller's bytes until then.
    let Ok(_share) = share_of_body(proxy, client.identity.as_deref(), body.len()) else {
        return (response::too_many_bytes(), None);
    };
    let message = Inbound::read(&body);
    let (response, asked) = post(proxy, parts, client, &body, message).await;
    (
        response_body::with_request_size(body.len(), response),
        asked,
    )
}

/// The share of a large request. `Err`: its caller would have more than one caller may.
fn share_of_body(
    proxy: &Proxy,
    client: Option<&Identity>,
    bytes: usize,
) -> Result<Option<Share>, OverShare> {
    match (&proxy.fair, client) {
        // Small bodies have a part of the memory of their own, in which no caller is counted.
        (Some(fair), Some(client)) if bytes > SMALL => {
            let taken = fair.bytes.take(client.caller, bytes);
            taken.map(Some).ok_or(OverShare)
        }
        _ => Ok(None),
    }
}

/// Returns `true` for a message that opens a session. Some clients name in the header of it the newest revision that they
/// know.
fn is_legacy_handshake(message: &Inbound<'_>) -> bool {
    message
        .method()
        .is_some_and(|method| method == "initialize")
        && message.era() == Era::Legacy
}

struct OverShare;

/// Answers a message of a client whose body was read.
pub(super) async fn post(
    proxy: &Arc<Proxy>,
    mut parts: Box<Parts>,
    client: RequestClient,
    read: &Bytes,
    message: Inbound<'_>,
) -> Answered {
    let by_headers = era_by_headers(&parts.headers).filter(|_| !is_legacy_handshake(&message));
    let era = by_headers.unwrap_or_else(|| message.era());
    let Traced { edited, span } = if traces::are_on() {
        traced::begin(&mut parts, era, &message)
    } else {
        Traced::default()
    };
    let kept;
    let (body, message) = match (edited, era) {
        (Some(edited), Era::Legacy) => {
            // A legacy message passes from these bytes, so those with the trace replace them. A modern message is read
            // anew only where it does not just pass, which costs less.
            drop(message);
            kept = edited;
            (PostBody::of(&kept), Inbound::read(&kept))
        }
        (traced, _) => (PostBody { read, traced }, message),
    };
    let mut by = proxy.requester(&parts, era, client.identity);
    by.is_local = client.is_local;
    by.span.clone_from(&span);
    let accessed = Accessed::begin(proxy, &by, &parts.headers, &message);
    let asked = Asked::begin(&parts, &message, era, span.map(SpanGuard::new));
    let response = match era {
        Era::Legacy => Box::pin(sessions::post(proxy, &by, parts, body.read, message)).await,
        Era::Modern => modern(proxy, &mut by, parts, body, message).await,
    };
    if let Some(accessed) = accessed {
        accessed.end(&response);
    }
    (response, asked)
}

/// The body of a message.
struct PostBody<'b> {
    /// The bytes that were read.
    read: &'b Bytes,
    /// The bytes that are sent in its place where the message passes: the same, with its trace.
    traced: Option<Bytes>,
}

impl<'b> PostBody<'b> {
    fn of(read: &'b Bytes) -> Self {
        Self { read, traced: None }
    }
}

async fn modern(
    proxy: &Arc<Proxy>,
    by: &mut Requester,
    mut parts: Box<Parts>,
    body: PostBody<'_>,
    message: Inbound<'_>,
) -> Response<Body> {
    if let Err(error) = by.check_headers(&parts.headers) {
        let id = message.request_id();
        return response::refusal_of(id, StatusCode::BAD_REQUEST, &error);
    }
    // The revision has no sessions, and a server of both eras could take another caller's from it.
    parts.headers.remove(SESSION_ID);
    let modern = match message.modern(&parts.headers) {
        Ok(ModernMessage::Request(modern)) => modern,
        // On this transport, clients have no notification that needs an answer.
        Ok(ModernMessage::Notification) => return response::empty(StatusCode::ACCEPTED),
        Err(refused) => return unread(&refused),
    };
    // Only these methods depend on which client it is, and the lookup costs as much as reading `_meta`.
    if matches!(&*modern.request.method, "tools/call" | "tools/list") {
        by.client = ClientTerms::of(modern.meta.client_info.and_then(known_client::of));
    }
    if modern.request.method == "tools/call" {
        by.recognise(&parts.headers, modern.meta.client_info);
    }
    // Checked before the route is chosen, so that no way to a tool or to its task leads past it.
    if by.rules.wants_scopes()
        && let Some(refusal) = Box::pin(proxy.scope_refusal(by, &modern.request)).await
    {
        return refusal;
    }
    let PostBody { read: body, traced } = body;
    if !modern.meta.names_tasks {
        let key = tools::same_call_key(proxy, by, &modern.request);
        let given_up = if tools::may_be_given_up(proxy, by, key) {
            Box::pin(tools::given_up(proxy, by, &modern.request, key)).await
        } else {
            None
        };
        tools::enter(proxy, by, key);
        let routed = routed(proxy, by, &modern, given_up);
        if matches!(routed.1, Route::Pass) {
            let is_call = modern.request.method == "tools/call";
            // Dropped before the wait, so that the future of a request that passes does not keep them.
            drop((routed, modern));
            let body = traced.unwrap_or_else(|| body.clone());
            return passthrough::request(proxy, by, is_call, (parts, body)).await;
        }
        if traced.is_none() {
            return Box::pin(answer(proxy, by, &parts, body, &modern, routed)).await;
        }
    }
    if let Some(traced) = traced {
        // What does not just pass is read with its trace.
        drop(modern);
        let (body, message) = (PostBody::of(&traced), Inbound::read(&traced));
        return Box::pin(self::modern(proxy, by, parts, body, message)).await;
    }
    // The server must not see the ids of raincheck's tasks.
    let edited = Box::pin(proxy.without_our_ids(by, body, &modern.request)).await;
    let id = modern.request.id.to_owned();
    drop(modern);
    forget_length(&mut parts.headers);
    if let Some(RedactedBody { body, related }) = edited
        && let Ok(ModernMessage::Request(modern)) = Inbound::read(&body).modern(&parts.headers)
    {
        by.related = related;
        let key = tools::same_call_key(proxy, by, &modern.request);
        let given_up = tools::given_up(proxy, by, &modern.request, key).await;
        tools::enter(proxy, by, key);
        let routed = routed(proxy, by, &modern, given_up);
        return Box::pin(answer(proxy, by, &parts, &body, &modern, routed)).await;
    }
    // Unedited, the body could show the server the ids of raincheck's tasks.
    let error = RpcError::internal("The request cannot be passed on");
    Rpc::error(id.get(), &error).into_response()
}

/// Refuses a message that is not in order.
fn unread(refused: &Refused) -> Response<Body> {
    match &refused.id {
        Some(id) => Rpc::error(id.get(), &refused.error).into_response(),
        None => response::refusal(StatusCode::BAD_REQUEST, &refused.error),
    }
}

/// Follows the route of a modern client's request. The route is decided again when more is known.
async fn answer<'k>(
    proxy: &'k Arc<Proxy>,
    by: &'k Requester,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
    (mut facts, first): (RequestFacts<'k>, Route<'k>),
) -> Response<Body> {
    let (mut next, mut until) = (Some(first), None);
    let answered = loop {
        match next.take().unwrap_or_else(|| route(modern, by, &facts)) {
            Route::Ask(question, patience) => {
                let capabilities = modern.meta.capabilities.get();
                let asking = tools::ask(proxy, by, capabilities, question, &mut facts.calls.server);
                until = until.or_else(|| Some(Instant::now() + patience?));
                match tools::in_time(Box::pin(asking), until).await {
                    Ok(is_late) => facts.calls.is_late |= is_late,
                    Err(error) => break undecided(modern.request.id, error),
                }
            }
            Route::Pass => {
                let is_call = modern.request.method == "tools/call";
                let parts = Box::new(parts.clone());
                let passing = passthrough::request(proxy, by, is_call, (parts, body.clone()));
                break Box::pin(passing).await;
            }
            Route::PassWithHeartbeat => {
                let sent = (parts.clone(), body.clone());
                break Box::pin(modern_call::pass(proxy, by, sent, modern)).await;
            }
            Route::Refuse(error) => {
                break Rpc::error(modern.request.id.get(), &error).into_response();
            }
            Route::Discover => {
                return Box::pin(discover::answer(proxy, modern, by))
                    .await
                    .into_response();
            }
            Route::Task => match Box::pin(proxy.tasks(modern, by, modern.headers)).await {
                TaskAnswer::Unknown(_) if proxy.passes_native_tasks() => {
                    facts.is_no_task_here = true;
                }
                TaskAnswer::Known(rpc) | TaskAnswer::Unknown(rpc) => return rpc.into_response(),
            },
            Route::Result => {
                let reading = large_results::read(proxy, by, &modern.request);
                return Box::pin(reading).await.into_response();
            }
            Route::Listen => {
                let credentials = by.credentials.clone();
                return Box::pin(listen::answer(proxy, modern, by, credentials)).await;
            }
            Route::Event(op, ours) => {
                return Box::pin(events::answer::answer((proxy, ours), op, modern, by)).await;
            }
            Route::Companion(tool, names) => {
                let companion_tools = CompanionTools::of(proxy, by, names);
                let calling =
                    companion::call(&companion_tools, tool, &modern.request, modern.headers);
                break Box::pin(calling).await;
            }
            Route::List(how, terms) => {
                let asked = modern_call(proxy, by, modern, terms);
                break Box::pin(edited::list(proxy, &asked, how)).await;
            }
            Route::Call(terms) => {
                let asked = modern_call(proxy, by, modern, terms);
                break Box::pin(modern_call::carry(proxy, &asked)).await;
            }
        }
    };
    if !proxy.upstream.has_address() {
        Box::pin(discover::learn(proxy, modern, by)).await;
    }
    answered
}

fn routed<'k>(
    proxy: &'k Arc<Proxy>,
    by: &'k Requester,
    modern: &Modern<'_>,
    given_up: Option<CallClaim>,
) -> (RequestFacts<'k>, Route<'k>) {
    let mut facts = facts(proxy, by, &modern.request);
    facts.calls.given_up = given_up;
    let route = route(modern, by, &facts);
    (facts, route)
}

fn facts<'k>(
    proxy: &'k Arc<Proxy>,
    by: &'k Requester,
    request: &mcp::Request<'_>,
) -> RequestFacts<'k> {
    let tool = request.name().filter(|_| request.method == "tools/call");
    RequestFacts {
        calls: tools::facts_of_calls(proxy, by, tool.as_deref()),
        had_stand_in: proxy.stand_ins.was_told(&by.caller),
        is_no_task_here: false,
        events: proxy.events_for(by),
    }
}

fn modern_call<'a>(
    proxy: &Arc<Proxy>,
    by: &'a Requester,
    modern: &'a Modern<'a>,
    terms: Box<CallTerms>,
) -> ModernCall<'a> {
    ModernCall {
        modern,
        by,
        client_headers: proxy.upstream.client_headers(modern.headers),
        terms,
    }
}
