//! The facts about the server that a route needs: those known without a question, and the answers to questions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use super::calls::registry::JoinableCall;
use super::inbound::idempotency::{digest, given_up_claim, is_all_of_call};
use super::inbound::requester::Requester;
use super::inbound::route::call::CallFacts;
use super::inbound::route::{KnownServer, KnownTools, MissingFact};
use super::proxy::Proxy;
use crate::mcp::request::Request;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::claim::CallClaim;
use crate::runner::same_calls::CallKey;
use crate::upstream::wrapped::DiscoverError;

/// The time that a call waits for the server's list of tools.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time that a call waits until the same call, which runs, can be joined.
const SHARED_WITHIN: Duration = Duration::from_secs(1);

/// The server's tools, as a client with these capabilities may see them. `None`: the list cannot be had now.
pub(super) async fn listed(
    proxy: &Arc<Proxy>,
    by: &Requester,
    capabilities: &str,
) -> Option<Arc<Tools>> {
    let caller = *by.caller.as_bytes();
    let listing = proxy
        .upstream
        .tools(caller, by.credentials.clone(), capabilities.into());
    // The reading goes on after the timeout if the server was asked already, and a later call finds the list.
    let listed = timeout(PATIENCE, listing).await;
    listed.ok().and_then(Result::ok)
}

/// Returns the known facts about the server without a question.
pub(super) fn known(proxy: &Arc<Proxy>) -> KnownServer {
    KnownServer {
        era: proxy.upstream.known_era(),
        is_decided: proxy.upstream.is_decided(),
        speaks_http: proxy.upstream.speaks_http(),
        tools: KnownTools::NotAsked,
    }
}

/// Returns the known facts for the decision about a call of this tool, if it is one.
pub(super) fn facts_of_calls<'k>(
    proxy: &'k Arc<Proxy>,
    by: &'k Requester,
    tool: Option<&str>,
) -> CallFacts<'k> {
    CallFacts {
        rules: &by.rules,
        keeps_native_tasks: proxy.settings.pass_native_tasks,
        trusts_annotations: proxy.settings.trust_annotations,
        companion: proxy.companion_of(by),
        is_limited: tool.is_some_and(|tool| by.rules.limits(tool)),
        requires_task: Some(false),
        is_late: false,
        server: known(proxy),
        given_up: None,
        answer_at: proxy.runner.answer_at(|| by.clock_of(tool?)),
    }
}

/// Returns the claim by which this request collects the same `tools/call`, if its client gave that up. While no client gave a
/// call up, this costs one comparison. `key`: see [`same_call_key`].
pub(super) async fn given_up(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    key: Option<CallKey>,
) -> Option<CallClaim> {
    if request.method != "tools/call" {
        return None;
    }
    // First, because the cancel of the same call may still be on its way over another connection.
    let mut joins = false;
    if let Some(session) = by.session {
        let same = proxy
            .calls
            .given_up_are_kept((session, request.id.get()), || digest(request))
            .await;
        joins = same.was_joined;
        if let Some(running) = same.running.filter(|_| is_all_of_call(&request.params)) {
            let sharing = share(proxy, by, request, &running);
            if Box::pin(sharing).await.is_some() {
                proxy.calls.is_joined(session, digest(request));
                joins = true;
            }
        }
    }
    if let Some(key) = key {
        let same_calls = proxy.runner.same_calls();
        if same_calls.may_be_given_up(key, by.is_piped) {
            same_calls.settled(key).await;
        }
    }
    if !proxy.runner.may_have_given_up() {
        return None;
    }
    let claim = given_up_claim(request, by)?;
    let was_given_up = proxy.runner.was_given_up(&claim, joins).await;
    was_given_up.then_some(claim)
}

/// Makes a running call one that the same call can join, if the server says that its tool may be called again. Many clients
/// say nothing when their clock ends, so this call may be the next try, or one that its client wants as well.
async fn share(
    proxy: &Arc<Proxy>,
    by: &Requester,
    request: &Request<'_>,
    running: &JoinableCall,
) -> Option<()> {
    let tool = request.params.get_str("name")?;
    by.rules.for_tool(&tool).0.give_up_window_ms?;
    let tools = listed(proxy, by, by.session_capabilities()).await?;
    let repeats = tools.get(&tool)?.repeats?;
    if running.is_cancelled() {
        return None;
    }
    let shared = timeout(SHARED_WITHIN, running.note.sends_again(repeats));
    shared.await.ok()
}

/// Returns `true` if [`given_up`] has to look: a modern client may have given up a call, perhaps just now this one.
pub(super) fn may_be_given_up(proxy: &Proxy, by: &Requester, key: Option<CallKey>) -> bool {
    proxy.runner.may_have_given_up()
        || key.is_some_and(|key| proxy.runner.same_calls().may_be_given_up(key, by.is_piped))
}

/// Enters a call of this key into the table of the calls that run.
pub(super) fn enter(proxy: &Proxy, by: &mut Requester, key: Option<CallKey>) {
    by.running = key.map(|key| proxy.runner.same_calls().enter(key));
}

/// The key of a `tools/call` of a modern client that can be told apart, in the table of the calls that run.
pub(super) fn same_call_key(
    proxy: &Proxy,
    by: &Requester,
    request: &Request<'_>,
) -> Option<CallKey> {
    if by.era == Era::Legacy || request.method != "tools/call" {
        return None;
    }
    let whose = by.gives_up_as()?;
    let tool = request.params.get_str("name")?;
    // A call that is never kept after its client gives up need not be found.
    by.rules.for_tool(&tool).0.give_up_window_ms?;
    let arguments = request.params.get("arguments").map_or("", RawValue::get);
    Some(proxy.runner.same_calls().key(&whose, &tool, arguments))
}

/// Asks the server, and adds the answer to what is known.
pub(super) async fn ask(
    proxy: &Arc<Proxy>,
    by: &Requester,
    capabilities: &str,
    question: MissingFact,
    server: &mut KnownServer,
) -> Result<(), DiscoverError> {
    let learnt = match question {
        MissingFact::Era => {
            // The process that is asked for its era then serves this call, so it needs the client's capabilities.
            proxy.upstream.expect(capabilities);
            let era = proxy.upstream.era(by.credentials.clone()).await?;
            KnownServer {
                era: Some(era),
                // A list that was read before stays, because `known` has none.
                tools: std::mem::take(&mut server.tools),
                ..known(proxy)
            }
        }
        MissingFact::Tools => KnownServer {
            tools: match listed(proxy, by, capabilities).await {
                Some(tools) => KnownTools::Listed(tools),
                None => KnownTools::Unavailable,
            },
            // Listing the tools may have shown the era and the transport as well.
            ..known(proxy)
        },
    };
    *server = learnt;
    Ok(())
}

/// Asks until that time. True: the server has not answered by then. It is asked all the same, and a task waits for that.
pub(super) async fn in_time(
    asking: impl Future<Output = Result<(), DiscoverError>>,
    until: Option<Instant>,
) -> Result<bool, DiscoverError> {
    let asked = match until {
        Some(until) => timeout_at(until, asking).await,
        None => Ok(asking.await),
    };
    asked.map_or(Ok(true), |asked| asked.map(|()| false))
}
