//! Tools of raincheck's own, by which clients without Tasks follow calls that take long: a call that
//! outlasts its client's patience is answered with a ticket, and the ticket is good for these tools.
//!
//! Requests that declare tasks never meet them. Where they are switched off nothing is read for them.

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use crate::downstream::body::Body;
use crate::downstream::call::{self, Asked};
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Shared;
use crate::mcp::request::Request;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::responder::{CallAnswer, CallSubscriber, Reply};
use crate::task::policy::{InputWhen, Plan, with_companion};
use crate::task::ticket::CompanionTool;

mod answers;
pub(super) mod desk;
mod list;
mod respond;
mod schema;
pub(super) mod state;

pub use state::Companion;

use desk::Desk;

/// A client calls one of our tools.
pub(super) async fn call(
    desk: &Desk<'_>,
    tool: CompanionTool,
    request: &Request<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    let by = desk.by;
    let (reads_events, words): (_, fn(&str, CallAnswer) -> Rpc) = match by.era {
        Era::Modern => (true, Rpc::answer),
        Era::Legacy => (by.reads_events, |id, answer| {
            Rpc::legacy_answer(id, answer).on_session()
        }),
    };
    let asked = respond::Asked {
        tool,
        id: request.id,
        arguments: request.params.get("arguments"),
        streams: reads_events && by.takes_large_events,
        headers,
        words,
    };
    desk.respond(asked).await
}

/// A modern client lists the tools: the server's, and ours behind the last of them.
pub(super) async fn list(front: &Shared, asked: &Asked<'_>) -> Response<Body> {
    let id = asked.modern.request.id.get();
    let (answer, client) = match listed(front, asked).await {
        Ok(listed) => listed,
        Err(refused) => return refused,
    };
    let answer = match answer {
        CallAnswer::Result(result) => {
            let is_whole = !asked.modern.request.params.contains("cursor");
            let capabilities = asked.modern.meta.capabilities.get();
            CallAnswer::Result(with_ours(front, asked.by, capabilities, result, is_whole).await)
        }
        CallAnswer::Error(_) | CallAnswer::Failed(_) | CallAnswer::StoreUnavailable(_) => answer,
    };
    Rpc::answer(id, answer).guarded(Some(client.into_guard()))
}

/// A list as the server gives it, and nothing of what it says before.
pub(super) async fn listed(
    front: &Shared,
    asked: &Asked<'_>,
) -> Result<(CallAnswer, CallSubscriber), Response<Body>> {
    let id = asked.modern.request.id.get();
    let mut client = call::begin(front, asked)
        .map_err(|refused| Rpc::not_begun(id, refused.reason()).into_response())?;
    let Some(answer) = answer_of(&mut client).await else {
        return Err(Rpc::abandoned(id).into_response());
    };
    Ok((answer, client))
}

/// The answer alone.
async fn answer_of(client: &mut CallSubscriber) -> Option<CallAnswer> {
    loop {
        match client.next().await? {
            Reply::Relay(_) => {}
            Reply::Answer(answer) => return Some(answer),
        }
    }
}

/// A page of the list, with output schemas that tickets fit, and with our tools where it is the last
/// one. `is_first`: it may be the only one.
pub(super) async fn with_ours(
    front: &Shared,
    by: &Requester,
    capabilities: &str,
    page: Box<RawValue>,
    is_first: bool,
) -> Box<RawValue> {
    let Some(companion) = &front.companion else {
        return page;
    };
    let may_be_ticket = |tool: &str| {
        let plan = with_companion(front.rules.for_tool(tool).0, InputWhen::BeforeTask);
        matches!(plan, Plan::Auto { .. })
    };
    let page = list::admitting_tickets(&page, may_be_ticket).unwrap_or(page);
    if !list::is_last(&page) {
        return page;
    }
    let names = if is_first {
        // All that there is to clash with is here.
        let mut tools = Tools::default();
        match tools.add_page(&page) {
            Ok(_) => companion.names(Some(&tools)),
            Err(_) => None,
        }
    } else {
        Desk::open(front, by, capabilities)
            .await
            .map(|desk| desk.names)
    };
    let edited = names.and_then(|names| list::with(&page, &names, companion.wait_max));
    edited.unwrap_or(page)
}
