//! Companion tools on these sessions: a call that outlasts its client's patience is answered with a
//! ticket, also where its server asked something that the client left open.

use hyper::{HeaderMap, Response};

use super::asked::Asked;
use super::session::Session;
use crate::downstream::body::Body;
use crate::downstream::companion;
use crate::downstream::companion::desk::Desk;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::proxy::Shared;
use crate::mcp::json::{Object, set};
use crate::mcp::request::Request;
use crate::mcp::tasks_2025::Wish;

/// Where the session's calls are concerned. `None`: there is none, or the call is to be a task.
pub(super) async fn desk<'a>(
    front: &'a Shared,
    by: &'a Requester,
    session: &Session,
    request: &Request<'_>,
) -> Option<Desk<'a>> {
    let wishes = session.has_tasks() && Wish::is_in(&request.params);
    let is_call = request.method == "tools/call" && !wishes;
    if !is_call || front.companion.is_none() {
        return None;
    }
    Desk::open(front, by, session.entry.capabilities.get()).await
}

/// The answer to a call of one of our tools. `None`: it is the server's.
pub(super) async fn answer(
    desk: &Desk<'_>,
    request: &Request<'_>,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let tool = desk.tool(&request.params.get_str("name")?)?;
    Some(companion::call(desk, tool, request, headers).await)
}

/// The answer to `tools/list` with our tools in it.
pub(super) async fn listed(asked: &Asked, json: String) -> String {
    let message = Object::parse(&json).unwrap_or_default();
    let Some(result) = message.get("result").map(ToOwned::to_owned) else {
        return json;
    };
    let capabilities = asked.session.entry.capabilities.get();
    let is_first = Object::parse(&asked.params).is_ok_and(|params| !params.contains("cursor"));
    let page = companion::with_ours(&asked.front, &asked.by, capabilities, result, is_first).await;
    set(&json, "result", page.get()).unwrap_or(json)
}
