//! Tools of raincheck's own, by which clients without Tasks follow calls that take long: a call that
//! outlasts its client's patience is answered with a ticket, and the ticket is good for these tools.
//!
//! Requests that declare tasks never meet them. Where they are switched off nothing is read for them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, Response};
use serde_json::value::RawValue;

use super::body::Body;
use super::call::{self, Asked};
use super::intercept::Modern;
use super::legacy::accepts_events;
use super::legacy::words::Request as LegacyRequest;
use super::patience;
use super::reply::Rpc;
use super::tasks::Shared;
use super::{Front, Known, TOOLS_PATIENCE};
use crate::mcp::request::Request;
use crate::mcp::tools::Tools;
use crate::mcp::version::Era;
use crate::runner::Announce;
use crate::runner::seat::{Answer, Client, Reply};
use crate::task::id::Caller;
use crate::task::policy::{InputWhen, Plan, Rule, with_companion};
use crate::task::ticket::{Names, Ticket, Tool};

mod answers;
mod desk;
mod list;
mod schema;

/// `task_status` and `task_result` answer this long before `fallback_after`, so that the client's own
/// timeout, which is the same for every call, never fires first.
const WAIT_SPARE: Duration = Duration::from_secs(5);

/// Clients that are remembered to know nothing of our tools.
const UNAWARE_MAX: usize = 4096;

/// What the companion tools are told.
#[derive(Debug)]
pub struct Companion {
    prefix: Arc<str>,
    wait_max: Duration,
    /// Sessions, or callers without one, whose list of tools passed without ours.
    unaware: Mutex<HashSet<[u8; 16]>>,
}

impl Companion {
    /// The prefix is for names that the server has, too; clients wait for at least `patience`.
    pub fn new(prefix: &str, patience: Duration) -> Self {
        let spared = patience.saturating_sub(WAIT_SPARE).max(patience / 2);
        Self {
            prefix: prefix.into(),
            wait_max: spared,
            unaware: Mutex::default(),
        }
    }

    fn unaware(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        self.unaware.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client knows of our tools is what was in its list.
    pub(super) fn note_list(&self, whose: [u8; 16], has_ours: bool) {
        let mut unaware = self.unaware();
        if has_ours {
            unaware.remove(&whose);
            return;
        }
        if unaware.len() >= UNAWARE_MAX {
            unaware.clear();
        }
        unaware.insert(whose);
    }

    /// Whether no ticket is of any use to that client.
    pub(super) fn is_unknown_to(&self, whose: &[u8; 16]) -> bool {
        self.unaware().contains(whose)
    }
}

/// Where one caller's tickets are taken.
pub(super) struct Desk<'a> {
    front: &'a Shared,
    companion: &'a Companion,
    who: Who,
    names: Names,
    tools: Option<Arc<Tools>>,
}

/// A caller, and how it is spoken to.
#[derive(Clone)]
pub(super) struct Who {
    pub(super) caller: Caller,
    pub(super) credentials: Option<HeaderValue>,
    pub(super) capabilities: Arc<str>,
    /// Whose words it speaks.
    pub(super) face: Era,
}

impl Who {
    /// The server's tools, as this caller may see them. `None`: the list cannot be had now.
    pub(super) async fn tools(&self, front: &Shared) -> Option<Arc<Tools>> {
        let listed = front.upstream.tools(
            *self.caller.as_bytes(),
            self.credentials.clone(),
            Arc::clone(&self.capabilities),
        );
        let listed = tokio::time::timeout(TOOLS_PATIENCE, listed).await;
        listed.ok().and_then(Result::ok)
    }
}

impl<'a> Desk<'a> {
    /// `None`: there is none, or the server has tools of all our names.
    pub(super) async fn open(front: &'a Shared, who: Who) -> Option<Self> {
        let companion = front.companion.as_ref()?;
        // Where the list cannot be had, nobody knows of a clash, the client least of all.
        let tools = who.tools(front).await;
        let is_taken = |name: &str| {
            tools
                .as_ref()
                .is_some_and(|tools| tools.get(name).is_some())
        };
        let names = Names::free(&companion.prefix, is_taken)?;
        Some(Self {
            front,
            companion,
            who,
            names,
            tools,
        })
    }

    /// The tool of ours that has this name.
    pub(super) fn tool(&self, name: &str) -> Option<Tool> {
        self.names.tool(name)
    }

    /// What the server says of a tool of its own.
    pub(super) fn known(&self, tool: &str) -> Known {
        let known = self.tools.as_ref().and_then(|tools| tools.get(tool));
        known.map(Known::of).unwrap_or_default()
    }

    /// How a call of a tool of the server's is carried.
    pub(super) fn plan(&self, rule: &Rule) -> Plan {
        with_companion(
            rule,
            match self.who.face {
                // Its client answers by coming back.
                Era::Modern => InputWhen::BeforeTask,
                Era::Legacy => InputWhen::InTask,
            },
        )
    }

    /// How its client, whose request has these headers, hears that it became a task.
    pub(super) fn announce(&self, headers: &HeaderMap) -> Announce {
        Announce::Ticket(Ticket {
            names: self.names.clone(),
            face: self.who.face,
            takes_large_events: patience::takes_large_events(headers),
        })
    }
}

/// Where a modern client's calls are concerned. `None`: it follows tasks itself, or there is none.
pub(super) async fn desk<'a>(
    front: &'a Shared,
    modern: &Modern<'_>,
    caller: Caller,
    credentials: Option<&HeaderValue>,
) -> Option<Desk<'a>> {
    if !is_for(front, modern, "tools/call") {
        return None;
    }
    Desk::open(front, who(modern, caller, credentials.cloned())).await
}

/// Whether the answer to this request has our tools in it.
pub(super) fn is_listed(front: &Front, modern: &Modern<'_>) -> bool {
    is_for(front, modern, "tools/list")
}

fn is_for(front: &Front, modern: &Modern<'_>, method: &str) -> bool {
    front.companion.is_some() && modern.request.method == method && !modern.meta.declares_tasks
}

fn who(modern: &Modern<'_>, caller: Caller, credentials: Option<HeaderValue>) -> Who {
    Who {
        caller,
        credentials,
        capabilities: modern.meta.capabilities.get().into(),
        face: Era::Modern,
    }
}

/// A modern client calls one of our tools.
pub(super) async fn call(
    desk: &Desk<'_>,
    tool: Tool,
    request: &Request<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    let asked = desk::Asked {
        tool,
        id: request.id,
        arguments: request.params.get("arguments"),
        streams: patience::takes_large_events(headers),
        headers,
        words: Rpc::answer,
    };
    desk.respond(asked).await
}

/// A legacy client does.
pub(super) async fn legacy_call(
    desk: &Desk<'_>,
    tool: Tool,
    request: &LegacyRequest<'_>,
    headers: &HeaderMap,
) -> Response<Body> {
    let asked = desk::Asked {
        tool,
        id: request.id,
        arguments: request.params.get("arguments"),
        streams: accepts_events(headers) && patience::takes_large_events(headers),
        headers,
        words: |id, answer| Rpc::legacy_answer(id, answer).on_session(),
    };
    desk.respond(asked).await
}

/// A modern client lists the tools: the server's, and ours behind the last of them.
pub(super) async fn list(front: &Shared, asked: &Asked<'_>, rule: Rule) -> Response<Body> {
    let id = asked.modern.request.id.get();
    let (answer, client) = match listed(front, asked, rule).await {
        Ok(listed) => listed,
        Err(refused) => return refused,
    };
    let answer = match answer {
        Answer::Result(result) => {
            let is_whole = !asked.modern.request.params.contains("cursor");
            let who = who(asked.modern, asked.caller, asked.credentials.clone());
            Answer::Result(with_ours(front, who, result, is_whole).await)
        }
        Answer::Error(_) | Answer::Failed(_) | Answer::StoreUnavailable(_) => answer,
    };
    Rpc::answer(id, answer).guarded(Some(client.into_guard()))
}

/// A list as the server gives it, and nothing of what it says before.
pub(super) async fn listed(
    front: &Shared,
    asked: &Asked<'_>,
    rule: Rule,
) -> Result<(Answer, Client), Response<Body>> {
    let id = asked.modern.request.id.get();
    let mut client = call::begin(front, asked, Plan::Held, rule)
        .map_err(|refused| Rpc::not_begun(id, refused.reason()).into_response())?;
    let Some(answer) = answer_of(&mut client).await else {
        return Err(Rpc::abandoned(id).into_response());
    };
    Ok((answer, client))
}

/// The answer alone.
async fn answer_of(client: &mut Client) -> Option<Answer> {
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
    who: Who,
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
            Ok(_) => Names::free(&companion.prefix, |name| tools.get(name).is_some()),
            Err(_) => None,
        }
    } else {
        Desk::open(front, who).await.map(|desk| desk.names)
    };
    let edited = names.and_then(|names| list::with(&page, &names, companion.wait_max));
    edited.unwrap_or(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_told_of_our_tools_gets_no_ticket_until_it_is() {
        let companion = Companion::new("our_", Duration::from_secs(45));
        let (one, other) = ([1; 16], [2; 16]);
        companion.note_list(one, false);
        assert!(companion.is_unknown_to(&one) && !companion.is_unknown_to(&other));
        companion.note_list(one, true);
        assert!(!companion.is_unknown_to(&one));
        for number in 0..u128::try_from(2 * UNAWARE_MAX).unwrap() {
            companion.note_list(number.to_be_bytes(), false);
            assert!(companion.unaware().len() <= UNAWARE_MAX);
        }
    }
}
