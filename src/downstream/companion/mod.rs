//! COMPANION TOOLS: tools of raincheck's own for clients without Tasks. A call that takes longer than its client's
//! patience is answered with a ticket, and these tools take the ticket.
//!
//! Requests that declare tasks never see these tools. While they are switched off, nothing is read for them.

use std::sync::Arc;

use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use crate::downstream::body::Body;
use crate::downstream::inbound::requester::Requester;
use crate::downstream::outbound::response::Rpc;
use crate::downstream::proxy::Proxy;
use crate::mcp::json::raw;
use crate::mcp::request::Request;
use crate::mcp::tool_list::{is_last, with_jobs, with_result_sizes};
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::responder::CallAnswer;
use crate::task::plan::{Plan, with_companion};
use crate::task::policy::{InputWhen, Rules};
use crate::task::ticket::CompanionTool;

mod answers;
mod list;
mod listing;
mod respond;
mod schema;
pub(super) mod state;
pub(super) mod tools;

pub use state::{Companion, WhoHas};

use state::wait_max;
use tools::CompanionTools;

/// Answers a call of a companion tool.
pub(super) async fn call(
    companion_tools: &CompanionTools<'_>,
    tool: CompanionTool,
    request: &Request<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    let by = companion_tools.by;
    let (reads_events, words): (_, fn(&str, CallAnswer) -> Rpc) = match by.era {
        Era::Modern => (true, Rpc::answer),
        Era::Legacy => (by.reads_events, |id, answer| {
            Rpc::legacy_answer(id, answer).on_session()
        }),
    };
    let asked = respond::ToolRequest {
        tool,
        id: request.id,
        arguments: request.params.get("arguments"),
        streams: reads_events && by.takes_large_events,
        headers,
        words,
    };
    companion_tools.respond(asked).await
}

/// Returns a page of the list as the rules want it: with the sizes of results, and with tools that start jobs in place of all the
/// tools of a job.
pub(super) fn by_rules(rules: &Rules, page: Box<RawValue>) -> Box<RawValue> {
    if !rules.edits_list() {
        return page;
    }
    let size_of = |tool: &str| rules.for_tool(tool).0.max_result_size_chars;
    let sized = with_result_sizes(page.get(), size_of);
    let jobs = rules.jobs();
    let mut tools = Tools::default();
    // A rule whose tools are on several pages changes nothing in them. Its jobs are followed nevertheless.
    let edited = match tools.add_page(&page) {
        Ok(_) if !jobs.is_empty() => {
            let page = sized.as_deref().unwrap_or_else(|| page.get());
            let starts = |tool: &str| jobs.follows(tool, &tools);
            with_jobs(page, starts, |tool| jobs.hides(tool, &tools)).or(sized)
        }
        Ok(_) | Err(_) => sized,
    };
    edited.and_then(|text| raw(text).ok()).unwrap_or(page)
}

/// A page of the list, with output schemas that admit tickets. The last page has the companion tools. `is_first`: the
/// page may be the only one.
pub(super) async fn with_ours(
    proxy: &Arc<Proxy>,
    by: &Requester,
    capabilities: &str,
    page: Box<RawValue>,
    is_first: bool,
) -> Box<RawValue> {
    let Some(companion) = proxy.companion_of(by) else {
        return page;
    };
    let may_be_ticket = |tool: &str| {
        let plan = with_companion(by.rules.for_tool(tool).0, by.client, InputWhen::BeforeTask);
        matches!(plan, Plan::Auto { .. })
    };
    let page = list::admitting_tickets(&page, may_be_ticket).unwrap_or(page);
    if !is_last(&page) {
        return page;
    }
    let names = if is_first {
        // All tools are on this page, and so all names that could clash.
        let mut tools = Tools::default();
        match tools.add_page(&page) {
            Ok(_) => companion.names(Some(&tools)),
            Err(_) => None,
        }
    } else {
        // The names of the server's tools on earlier pages count, too, so the whole list is asked for.
        CompanionTools::open(proxy, by, capabilities)
            .await
            .map(|companion_tools| companion_tools.names)
    };
    let edited =
        names.and_then(|names| list::with(&page, &names, (wait_max(by), by.list_key.is_some())));
    edited.unwrap_or(page)
}
