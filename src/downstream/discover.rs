//! `server/discover`: what the wrapped server can do, plus Tasks. raincheck answers in time whatever the server does:
//! clients give up on a discovery that hangs, and do not repeat one that was answered.
//!
//! While nothing is known of the server, raincheck declares that the server may have everything. A caller that
//! received this answer gets an empty list of each feature that the server turns out not to have.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use serde_json::value::RawValue;

use super::events::capability;
use super::events::state::EventsFor;
use super::inbound::request::Modern;
use super::inbound::requester::Requester;
use super::inbound::route::list_member;
use super::outbound::response::Rpc;
use super::proxy::Proxy;
use crate::mcp::json::{Object, Writer, is_object, raw};
use crate::mcp::meta::TASKS_EXTENSION;
use crate::mcp::version::{ALL_AS_JSON, Era, MODERN, era_of};
use crate::runner::responder::CallAnswer;
use crate::upstream::wrapped::{DiscoverError, Discovered};

/// Upper bound of the time that the server takes. The shortest patience of a real client over HTTP is 5 s.
const PATIENCE: Duration = Duration::from_secs(4);

/// Upper bound of the time that the server takes for a client over a pipe, whose patience of 2.9 s includes its own
/// start and raincheck's; and of the time that a program takes, whose start is not waited for.
const SOON: Duration = Duration::from_millis(750);

/// Upper bound of the time in which a program that is known already reports news.
const NEWS: Duration = Duration::from_millis(300);

/// The capabilities of a server that was never reached. A client never asks for what is missing here.
const UNKNOWN_CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}"#;

pub(super) async fn answer(proxy: &Arc<Proxy>, modern: &Modern<'_>, by: &Requester) -> Rpc {
    let id = modern.request.id.get();
    let capabilities = modern.meta.capabilities.get();
    let upstream = &proxy.upstream;
    let caller = *by.caller.as_bytes();
    let has_events = matches!(proxy.events_for(by), EventsFor::ThisClient(_));
    let is_known = upstream.last_discovered(caller).is_some();
    let patience = match (is_known, upstream.has_address()) {
        (true, false) => NEWS,
        // The server may want other credentials by now.
        (true, true) | (false, false) => SOON,
        (false, true) if by.is_piped => SOON,
        (false, true) => PATIENCE,
    };
    let asked = upstream.discover(caller, by.credentials.clone(), capabilities);
    // The timeout drops the future, but the question goes on, so that a later request finds its answer.
    match tokio::time::timeout(patience, asked).await {
        Ok(Ok(discovered)) => {
            let era = proxy.upstream.known_era();
            Rpc::result(id, &result(&discovered, era, has_events))
        }
        // An OAuth client must see the challenge, not a guess. What the server said to one caller must not replace
        // its refusal to another.
        Ok(Err(DiscoverError::Unauthorized(error) | DiscoverError::Refused(error))) => {
            Rpc::answer(id, CallAnswer::Error(error))
        }
        Ok(Err(DiscoverError::Failed(_))) | Err(_) => {
            // Only an answer that the server gave to this caller counts: one to another caller may hold a secret.
            let known = upstream.last_discovered(caller);
            let known = known.map(|known| result(&known, upstream.known_era(), has_events));
            let text = known.unwrap_or_else(|| {
                // Noted so that a list of a feature that the server lacks is empty for this caller, and no error.
                proxy.stand_ins.note(by.caller);
                stand_in(has_events)
            });
            Rpc::result(id, &text)
        }
    }
}

/// Stores, after a legacy program's first answer, the program's description of itself from the beginning of its
/// session, for the next client and the next run. Without this a client that probes one process and uses another, as
/// the official client does over a pipe, never gets the instructions. The program is not asked again.
pub(super) async fn learn(proxy: &Arc<Proxy>, modern: &Modern<'_>, by: &Requester) {
    let upstream = &proxy.upstream;
    // `swap` lets one of several requests ask, and none after it.
    let learns = upstream.known_era() == Some(Era::Legacy)
        && !proxy.stand_ins.has_learnt.swap(true, Ordering::Relaxed);
    if learns {
        let capabilities = modern.meta.capabilities.get();
        let caller = *by.caller.as_bytes();
        let asked = upstream.discover(caller, by.credentials.clone(), capabilities);
        // The discovery goes on by itself.
        let _ = tokio::time::timeout(Duration::ZERO, asked).await;
    }
}

/// The list of a feature that the server lacks.
pub(super) fn empty(method: &str) -> Option<Box<RawValue>> {
    let mut out = Writer::object();
    out.str("resultType", "complete")
        .raw(list_member(method)?, "[]");
    out.number("ttlMs", 0).str("cacheScope", "private");
    raw(out.end()).ok()
}

fn result(discovered: &Discovered, era: Option<Era>, has_events: bool) -> String {
    let listed = discovered.supported_versions.as_deref();
    let versions = match (listed.and_then(spoken), era) {
        (Some(versions), _) => versions,
        // The modern one, which raincheck serves, and those of the server's sessions, which pass.
        (None, Some(Era::Legacy)) => ALL_AS_JSON.to_owned(),
        (None, Some(Era::Modern) | None) => json!([MODERN]).to_string(),
    };
    let mut out = Writer::with_capacity(512);
    out.str("resultType", "complete");
    out.raw("supportedVersions", &versions);
    out.raw(
        "capabilities",
        &with_ours(&discovered.capabilities, has_events),
    );
    if let Some(instructions) = &discovered.instructions {
        out.raw("instructions", instructions.get());
    }
    // A server may answer each caller differently, so no shared cache may keep this.
    out.number("ttlMs", 0).str("cacheScope", "private");
    if let Some(info) = &discovered.server_info {
        let mut meta = Writer::object();
        meta.raw("io.modelcontextprotocol/serverInfo", info.get());
        out.raw("_meta", &meta.end());
    }
    out.end()
}

/// Returns those of a server's revisions that a client can speak through raincheck: the modern one, and those of the server's
/// sessions, which pass. `None`: the modern one is not among them.
fn spoken(listed: &RawValue) -> Option<String> {
    let listed: Vec<String> = serde_json::from_str(listed.get()).ok()?;
    let spoken = |revision: &&String| *revision == MODERN || era_of(revision) == Era::Legacy;
    let spoken: Vec<_> = listed.iter().filter(spoken).collect();
    let has_modern = spoken.iter().any(|revision| *revision == MODERN);
    has_modern.then(|| json!(spoken).to_string())
}

fn stand_in(has_events: bool) -> String {
    let mut out = Writer::object();
    out.str("resultType", "complete")
        .raw("supportedVersions", "[\"2026-07-28\"]");
    if let Ok(capabilities) = RawValue::from_string(UNKNOWN_CAPABILITIES.to_owned()) {
        out.raw("capabilities", &with_ours(&capabilities, has_events));
    }
    out.number("ttlMs", 0).str("cacheScope", "private");
    out.end()
}

/// The server's capabilities with the Tasks extension, which is exactly `{}`: strict clients do not recognise an
/// extension with settings. A legacy server's own `tasks` capability belongs to another protocol. `has_events`: the client has
/// raincheck's event.
fn with_ours(capabilities: &RawValue, has_events: bool) -> String {
    let object = Object::parse(capabilities.get()).unwrap_or_default();
    let mut out = Writer::with_capacity(capabilities.get().len() + 64);
    for (key, value) in object.iter() {
        if key != "tasks" && key != "extensions" {
            out.raw(key, value.get());
        }
    }
    let mut extensions = Writer::object();
    let theirs = object.get("extensions").filter(|raw| is_object(raw));
    let theirs = theirs
        .and_then(|raw| Object::parse(raw.get()).ok())
        .unwrap_or_default();
    for (key, value) in theirs.iter() {
        if key != TASKS_EXTENSION {
            extensions.raw(key, value.get());
        }
    }
    extensions.raw(TASKS_EXTENSION, "{}");
    if has_events {
        capability::add((&object, &mut out), (&theirs, &mut extensions));
    }
    out.raw("extensions", &extensions.end());
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_added_exactly_and_the_legacy_capability_removed() {
        let edited =
            |text: &str| with_ours(&RawValue::from_string(text.to_owned()).unwrap(), false);
        assert_eq!(
            edited(
                r#"{"tools":{},"tasks":{"list":{}},"extensions":{"a/b":{"x":1},"io.modelcontextprotocol/tasks":{"y":2}}}"#
            ),
            r#"{"tools":{},"extensions":{"a/b":{"x":1},"io.modelcontextprotocol/tasks":{}}}"#
        );
        assert_eq!(
            edited("{}"),
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        );
    }

    /// A client that chose a revision which raincheck does not speak would be refused.
    #[test]
    fn only_revisions_that_raincheck_speaks_are_announced() {
        let announced = |text: &str| spoken(&RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!(
            announced(r#"["2027-03-01","2026-07-28","2025-11-25"]"#).as_deref(),
            Some(r#"["2026-07-28","2025-11-25"]"#)
        );
        for without in [r#"["2027-03-01"]"#, "[]", "7", r#"[2026,"2026-07-28"]"#] {
            assert_eq!(announced(without), None);
        }
    }

    #[test]
    fn events_are_said_in_both_forms_and_the_servers_own_words_stay() {
        let edited = |text: &str| with_ours(&RawValue::from_string(text.to_owned()).unwrap(), true);
        let ours = r#""io.modelcontextprotocol/tasks":{}"#;
        let key = "io.modelcontextprotocol/events";
        assert_eq!(
            edited("{}"),
            format!(r#"{{"events":{{}},"extensions":{{{ours},"{key}":{{}}}}}}"#)
        );
        assert_eq!(
            edited(r#"{"events":{"listChanged":true}}"#),
            format!(r#"{{"events":{{"listChanged":true}},"extensions":{{{ours},"{key}":{{}}}}}}"#)
        );
        let theirs = format!(r#"{{"extensions":{{"{key}":{{"listChanged":true}}}}}}"#);
        assert_eq!(
            edited(&theirs),
            format!(r#"{{"events":{{}},"extensions":{{"{key}":{{"listChanged":true}},{ours}}}}}"#)
        );
    }
}
