//! `server/discover`: what the wrapped server can do, plus Tasks. Answered in time whatever the
//! server does: clients give up on a discovery that hangs.

use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::value::RawValue;

use super::intercept::Modern;
use super::reply::Rpc;
use super::tasks::Shared;
use crate::mcp::json::{Object, Writer, is_object};
use crate::mcp::meta::TASKS_EXTENSION;
use crate::mcp::version::{Era, MODERN};
use crate::runner::seat::Answer;
use crate::task::id::Caller;
use crate::upstream::wrapped::{DiscoverError, Discovered};

/// The shortest patience of a real client is 5 s.
const PATIENCE: Duration = Duration::from_secs(4);

/// Until the server was reached once.
const UNKNOWN_CAPABILITIES: &str = r#"{"tools":{"listChanged":true}}"#;

/// What raincheck's own face serves in front of a legacy server: its modern one, and the
/// server's sessions passed through.
const WITH_LEGACY: &str = r#"["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]"#;

pub(super) async fn answer(
    front: &Shared,
    modern: &Modern<'_>,
    caller: Caller,
    credentials: Option<HeaderValue>,
) -> Rpc {
    let id = modern.request.id.get();
    let capabilities = modern.meta.capabilities.get();
    let asked = front
        .upstream
        .discover(*caller.as_bytes(), credentials, capabilities);
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(discovered)) => Rpc::result(id, &result(&discovered, front.upstream.known_era())),
        // An OAuth client must see the challenge, not a guess.
        // Nor may what the server refuses to one caller be what it said to another.
        Ok(Err(DiscoverError::Unauthorized(error) | DiscoverError::Refused(error))) => {
            Rpc::answer(id, Answer::Error(error))
        }
        Ok(Err(DiscoverError::Failed(_))) | Err(_) => {
            let known = front.upstream.last_discovered(*caller.as_bytes());
            let known = known.map(|known| result(&known, front.upstream.known_era()));
            Rpc::result(id, &known.unwrap_or_else(unknown))
        }
    }
}

fn result(discovered: &Discovered, era: Option<Era>) -> String {
    let versions = match (&discovered.supported_versions, era) {
        (Some(versions), _) if versions.get().contains(MODERN) => versions.get(),
        (_, Some(Era::Legacy)) => WITH_LEGACY,
        (_, Some(Era::Modern) | None) => "[\"2026-07-28\"]",
    };
    let mut out = Writer::with_capacity(512);
    out.str("resultType", "complete");
    out.raw("supportedVersions", versions);
    out.raw("capabilities", &with_tasks(&discovered.capabilities));
    if let Some(instructions) = &discovered.instructions {
        out.raw("instructions", instructions.get());
    }
    out.number("ttlMs", 0).str("cacheScope", "private");
    if let Some(info) = &discovered.server_info {
        let mut meta = Writer::object();
        meta.raw("io.modelcontextprotocol/serverInfo", info.get());
        out.raw("_meta", &meta.end());
    }
    out.end()
}

fn unknown() -> String {
    let mut out = Writer::object();
    out.str("resultType", "complete")
        .raw("supportedVersions", "[\"2026-07-28\"]");
    if let Ok(capabilities) = RawValue::from_string(UNKNOWN_CAPABILITIES.to_owned()) {
        out.raw("capabilities", &with_tasks(&capabilities));
    }
    out.number("ttlMs", 0).str("cacheScope", "private");
    out.end()
}

/// The server's capabilities with the Tasks extension, exactly `{}`: strict clients see no Tasks
/// where it has settings. A legacy server's own `tasks` capability speaks of another protocol.
fn with_tasks(capabilities: &RawValue) -> String {
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
    out.raw("extensions", &extensions.end());
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_added_exactly_and_the_legacy_capability_removed() {
        let edited = |text: &str| with_tasks(&RawValue::from_string(text.to_owned()).unwrap());
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
}
