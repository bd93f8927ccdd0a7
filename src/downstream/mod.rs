//! THE CLIENTS WE SERVE: from a request to the part that answers it.

use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::mcp::error::RpcError;
use crate::mcp::tools::Tool;
use crate::mcp::version::Era;
use crate::mcp::{params, request};
use crate::runner::seat::Answer;
use crate::runner::{Announce, Runner};
use crate::store::notebook::Notebook;
use crate::task::id::Caller;
use crate::task::policy::{Plan, Rule, Rules, plan};
use crate::upstream::wrapped::{DiscoverError, Upstream};

pub mod auth;
mod body;
mod call;
mod cancels;
mod claims;
pub mod companion;
pub mod dialect;
mod discover;
pub mod facade;
mod heartbeat;
pub mod held;
mod intercept;
pub mod legacy;
mod listen;
mod listen_leg;
mod pass;
mod reply;
pub mod route;
pub mod server;
pub mod stdio;
mod tasks;

use auth::Callers;
use body::Body;
use call::Asked;
use companion::{Companion, Desk};
use dialect::delivery::Deliveries;
use dialect::native::NativeTools;
use facade::Facade;
use held::live::Holds;
use intercept::{Intercepted, Modern};
use legacy::carried::Carried;
use legacy::pushes::Pushes;
use reply::Rpc;
use route::{Door, Names};
use tasks::{Answered, Shared};

/// How long a request body may take to arrive.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// How long a call waits for the list of tools that its headers are checked against.
const TOOLS_PATIENCE: Duration = Duration::from_secs(5);

/// What the downstream side is told.
#[derive(Debug, Clone)]
pub struct Settings {
    pub names: Names,
    pub body_bytes_max: usize,
    pub listen_task_ids_max: usize,
    /// What the server calls read-only or idempotent may be run again.
    pub trust_annotations: bool,
    /// A modern server's own tasks are the client's business.
    pub pass_native_tasks: bool,
}

/// Everything that a request needs.
#[derive(Debug)]
pub struct Front {
    pub runner: Arc<Runner>,
    pub upstream: Arc<Upstream>,
    pub rules: Arc<Rules>,
    pub callers: Callers,
    pub settings: Settings,
    /// Cancelled when streams without an end of their own must come to one.
    pub closing: CancellationToken,
    /// The answers that pass through now.
    pub passing: TaskTracker,
    /// The calls of legacy clients that are carried here, by the clients' ids.
    pub carried: Carried,
    /// The streams of legacy sessions that are open here.
    pub pushes: Arc<Pushes>,
    /// What is kept for clients beside their tasks.
    pub notes: Notebook,
    /// Whose tasks are told of on them.
    pub deliveries: Arc<Deliveries>,
    pub native_tools: Arc<NativeTools>,
    /// The calls of legacy clients that are kept for them here.
    pub holds: Arc<Holds>,
    pub facade: Facade,
    /// Tools for clients without Tasks, where they are wanted.
    pub companion: Option<Companion>,
}

// The futures of what is rare are boxed, so that what passes through stays small.

/// Answers one request. Dropped before it resolves, the client is gone: what it asked for is
/// cancelled unless it was announced.
async fn handle(front: Shared, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let names = &front.settings.names;
    if !names.host_is_ours(&parts.uri, &parts.headers) {
        tell_of_host(&parts);
        let error = RpcError::invalid_request(
            "Invalid request: Host is not a name of this server (listen.allowed_hosts)",
        );
        return reply::refusal_and_close(StatusCode::FORBIDDEN, &error);
    }
    if !names.origin_is_ours(&parts.headers) {
        let error = RpcError::invalid_request(
            "Invalid request: Origin is not allowed (listen.allowed_origins)",
        );
        return reply::refusal_and_close(StatusCode::FORBIDDEN, &error);
    }
    match names.door(&parts.uri) {
        None => reply::empty(StatusCode::NOT_FOUND),
        Some(Door::ProtectedResource) if !front.upstream.has_address() => {
            reply::empty(StatusCode::NOT_FOUND)
        }
        Some(Door::ProtectedResource) => pass::stream(&front, parts, body).await,
        Some(Door::Mcp) => mcp(&front, parts, body).await,
    }
}

/// Once in the life of the process: whoever sends such requests must not fill the log.
fn tell_of_host(parts: &Parts) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let host = route::host_as_written(&parts.uri, &parts.headers);
        warn!(
            host,
            "a request was refused for its Host, and others will be; a name that clients write \
             belongs in listen.allowed_hosts"
        );
    });
}

async fn mcp(front: &Shared, parts: Parts, body: Incoming) -> Response<Body> {
    let era = intercept::era_by_headers(&parts.headers);
    // Sessions are the legacy world.
    if parts.method != Method::POST || era == Some(Era::Legacy) {
        if era == Some(Era::Modern) {
            return reply::empty(StatusCode::METHOD_NOT_ALLOWED);
        }
        return legacy::answer(front, parts, body).await;
    }
    match read(body, front.settings.body_bytes_max).await {
        Read::Whole(body) => post(front, parts, body).await,
        Read::TooLarge(..) => Read::too_large(),
        Read::Refused(refusal) => refusal,
    }
}

/// A message of a client, whose body was read.
async fn post(front: &Shared, parts: Parts, body: Bytes) -> Response<Body> {
    let era = intercept::era_by_headers(&parts.headers);
    if era == Some(Era::Legacy) {
        return Box::pin(legacy::post(front, parts, body)).await;
    }
    if era.is_none() && intercept::era_by_body(&body) == Era::Legacy {
        return Box::pin(legacy::post(front, parts, body)).await;
    }
    match intercept::modern(&body, &parts.headers) {
        Ok(Intercepted::Request(modern)) => answer(front, &parts, &body, &modern).await,
        // No notification is defined from clients on this transport; none needs an answer.
        Ok(Intercepted::Notification) => reply::empty(StatusCode::ACCEPTED),
        Err(request::Refused {
            id: Some(id),
            error,
        }) => Rpc::error(id.get(), &error).into_response(),
        Err(request::Refused { id: None, error }) => {
            reply::refusal(StatusCode::BAD_REQUEST, &error)
        }
    }
}

/// What became of a request body.
enum Read {
    Whole(Bytes),
    /// Larger than asked for: what was read of it, and the rest.
    TooLarge(Bytes, Incoming),
    Refused(Response<Body>),
}

impl Read {
    fn too_large() -> Response<Body> {
        let error = RpcError::invalid_request("Invalid request: the body is too large");
        reply::refusal_and_close(StatusCode::PAYLOAD_TOO_LARGE, &error)
    }
}

async fn read(mut body: Incoming, bytes_max: usize) -> Read {
    match tokio::time::timeout(BODY_PATIENCE, read_into(&mut body, bytes_max)).await {
        Ok(Ok((bytes, true))) => Read::Whole(bytes),
        Ok(Ok((begun, false))) => Read::TooLarge(begun, body),
        Ok(Err(_)) => {
            let error = RpcError::parse("Parse error: the body ended early");
            Read::Refused(reply::refusal_and_close(StatusCode::BAD_REQUEST, &error))
        }
        Err(_elapsed) => {
            let error = RpcError::invalid_request("Invalid request: the body came too slowly");
            Read::Refused(reply::refusal_and_close(
                StatusCode::REQUEST_TIMEOUT,
                &error,
            ))
        }
    }
}

/// True where it was read to its end.
async fn read_into(body: &mut Incoming, bytes_max: usize) -> Result<(Bytes, bool), hyper::Error> {
    let mut read = Bytes::new();
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        // Most come in one piece.
        if read.is_empty() && more.is_empty() {
            read = data;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&std::mem::take(&mut read));
            }
            more.extend_from_slice(&data);
        }
        if read.len() + more.len() > bytes_max {
            return Ok((if more.is_empty() { read } else { more.freeze() }, false));
        }
    }
    Ok((if more.is_empty() { read } else { more.freeze() }, true))
}

async fn answer(
    front: &Shared,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
) -> Response<Body> {
    let caller = front.callers.of(&parts.headers);
    let credentials = front.credentials(&parts.headers);
    match &*modern.request.method {
        "server/discover" => discover::answer(front, modern, caller, credentials)
            .await
            .into_response(),
        method if method.starts_with("tasks/") => {
            let answered = Box::pin(front.tasks(modern, caller, credentials.clone())).await;
            match answered {
                Answered::Unknown(_) if front.passes_native_tasks() => {
                    forward(front, parts, body, modern, caller, credentials).await
                }
                Answered::Known(rpc) | Answered::Unknown(rpc) => rpc.into_response(),
            }
        }
        "subscriptions/listen" => {
            Box::pin(listen::answer(front, modern, caller, credentials)).await
        }
        _ => forward(front, parts, body, modern, caller, credentials).await,
    }
}

/// Everything that the wrapped server answers: streamed past where it speaks the client's era and
/// nothing has to be read, carried by the runner where not.
async fn forward(
    front: &Shared,
    parts: &Parts,
    body: &Bytes,
    modern: &Modern<'_>,
    caller: Caller,
    credentials: Option<HeaderValue>,
) -> Response<Body> {
    let request = &modern.request;
    let is_call = request.method == "tools/call";
    let name = if is_call {
        match tool_name(request) {
            Ok(name) => name,
            Err(error) => return Rpc::error(request.id.get(), &error).into_response(),
        }
    } else {
        String::new()
    };
    let rule = front.rules.for_tool(&name).0;
    let desk = Box::pin(companion::desk(front, modern, caller, credentials.as_ref())).await;
    if let Some(desk) = &desk
        && let Some(tool) = desk.tool(&name)
    {
        return Box::pin(companion::call(desk, tool, request)).await;
    }
    let plan = planned(rule, modern, desk.as_ref());
    if plan == Plan::Refuse {
        return Rpc::error(request.id.get(), &RpcError::tasks_required()).into_response();
    }
    let claim = match claims::of(modern, &parts.headers, &caller, rule) {
        Ok(claim) => claim,
        Err(error) => return Rpc::error(request.id.get(), &error).into_response(),
    };
    let era = match front.upstream.era(credentials.clone()).await {
        Ok(era) => era,
        Err(error) => return undecided(request.id, error),
    };
    let is_listed = companion::is_listed(front, modern);
    let may_pass = if is_call {
        claim.is_none() && may_stream_past(front, modern, rule, &name)
    } else {
        !is_listed
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
        caller,
        credentials,
        era,
        repeatable: false,
        // A task of ours must not become one of the server's.
        native_task: front.passes_native_tasks() && !matches!(plan, Plan::Always { .. }),
        announce: desk.map_or(Announce::Task, |desk| desk.announce(&name)),
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
    if is_listed {
        return Box::pin(companion::list(front, &asked, rule.clone())).await;
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

fn undecided(id: &RawValue, error: DiscoverError) -> Response<Body> {
    match error {
        DiscoverError::Unauthorized(error) => Rpc::answer(id.get(), Answer::Error(error)),
        DiscoverError::Failed(failure) => Rpc::failure(id.get(), failure),
    }
    .into_response()
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
    let capabilities = asked.modern.meta.capabilities.get().into();
    let tools = front.upstream.tools(
        *asked.caller.as_bytes(),
        asked.credentials.clone(),
        capabilities,
    );
    // A list that cannot be had leaves the check to the server itself.
    let Ok(Ok(tools)) = tokio::time::timeout(TOOLS_PATIENCE, tools).await else {
        return Ok(Known::default());
    };
    let Some(tool) = tools.get(name) else {
        return Ok(Known::default());
    };
    let arguments = asked.modern.request.params.get("arguments");
    params::check(tool, arguments, asked.headers).map_err(RpcError::header_mismatch)?;
    Ok(Known::of(tool))
}

/// What the server says of a tool, as far as it counts here.
#[derive(Debug, Default, Clone, Copy)]
struct Known {
    repeatable: bool,
    requires_task: bool,
}

impl Known {
    fn of(tool: &Tool) -> Self {
        Self {
            repeatable: tool.repeatable,
            requires_task: tool.requires_task(),
        }
    }
}

impl Front {
    fn passes_native_tasks(&self) -> bool {
        self.settings.pass_native_tasks && self.upstream.known_era() == Some(Era::Modern)
    }

    /// `Authorization` for the wrapped server: only where both are one resource.
    fn credentials(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let forwards = self.upstream.forwards_credentials();
        headers.get(AUTHORIZATION).filter(|_| forwards).cloned()
    }
}
