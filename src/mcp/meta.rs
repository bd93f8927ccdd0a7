//! The protocol fields that each modern request has in `_meta` (basic, Per-request protocol fields).

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::RpcError;
use super::json::{
    Fault, Object, folded, is_object, may_be_read_as, place_of, prepend, quote, set,
};

pub const META: &str = "_meta";
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub const EVENTS_EXTENSION: &str = "io.modelcontextprotocol/events";
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Ties a message to a task of 2025-11-25. Results for modern clients do not have it.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// The tasks that a request is about, by their ids (draft of the Tasks extension). Advisory.
pub const RELATED_TASK_IDS: &str = "io.modelcontextprotocol/relatedTaskIds";
/// The key of raincheck's own by which a client names its call, so that a repeated request joins the same
/// call.
pub const IDEMPOTENCY_KEY: &str = "io.raincheck/idempotencyKey";

const RESERVED: [&str; 7] = [
    PROTOCOL_VERSION,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
    PROGRESS_TOKEN,
    RELATED_TASK_IDS,
    IDEMPOTENCY_KEY,
];

/// The `_meta` of a notification on a stream. `id`: the id of the request that opened the stream, as JSON.
pub fn of_subscription(id: &str) -> String {
    format!(r#"{{"{SUBSCRIPTION_ID}":{id}}}"#)
}

/// The protocol fields of one modern request.
#[derive(Debug)]
pub struct Meta<'a> {
    pub version: Cow<'a, str>,
    pub capabilities: &'a RawValue,
    /// The client understands `CreateTaskResult` on this request.
    pub declares_tasks: bool,
    pub client_info: Option<&'a RawValue>,
    pub progress_token: Option<&'a RawValue>,
    pub log_level: Option<Cow<'a, str>>,
    pub idempotency_key: Option<&'a RawValue>,
    /// The request is about tasks, see [`RELATED_TASK_IDS`].
    pub names_tasks: bool,
}

impl<'a> Meta<'a> {
    /// Reads `params._meta`. A missing required field is the error -32602.
    pub fn of(meta: Option<&Object<'a>>) -> Result<Self, RpcError> {
        let meta =
            meta.ok_or_else(|| RpcError::invalid_params("Invalid params: _meta is missing"))?;
        // Checked before any field is read, because the server could find other values under these names.
        if meta.is_ambiguous(&RESERVED) {
            return Err(RpcError::invalid_request(
                "Invalid request: ambiguous _meta",
            ));
        }
        let version = meta.get_str(PROTOCOL_VERSION).ok_or_else(|| {
            RpcError::invalid_params("Invalid params: _meta has no protocol version")
        })?;
        let capabilities = meta
            .get(CLIENT_CAPABILITIES)
            .filter(|raw| is_object(raw))
            .ok_or_else(|| {
                RpcError::invalid_params("Invalid params: _meta has no client capabilities")
            })?;
        let log_level = match meta.get(LOG_LEVEL) {
            None => None,
            Some(raw) => Some(known_log_level(raw)?),
        };
        let progress_token = meta.get(PROGRESS_TOKEN);
        Ok(Self {
            version,
            capabilities,
            declares_tasks: declares_tasks(capabilities),
            client_info: meta.get(CLIENT_INFO),
            progress_token,
            log_level,
            idempotency_key: meta.get(IDEMPOTENCY_KEY),
            names_tasks: meta.contains(RELATED_TASK_IDS),
        })
    }
}

/// The ids in [`RELATED_TASK_IDS`]. Empty if the member is no list of strings, or if readers could find different
/// members: one that ignores case, or that takes the last of two. `None`: no reader finds such a member.
pub fn related_task_ids(params: &Object<'_>) -> Option<Vec<String>> {
    let metas = metas(params);
    let named = |meta: &Object<'_>| meta.iter().any(|(key, _)| is_related(key));
    if !metas.iter().any(|(_, meta)| named(meta)) {
        return None;
    }
    let [(_, meta)] = &*metas else {
        return Some(Vec::new());
    };
    // The only `_meta` may be written in another case, and not every reader takes that for it.
    let is_certain = params.contains(META) && !meta.is_ambiguous(&[RELATED_TASK_IDS]);
    let ids = meta.get(RELATED_TASK_IDS).filter(|_| is_certain);
    let ids = ids.and_then(|ids| serde_json::from_str(ids.get()).ok());
    Some(ids.unwrap_or_default())
}

/// The message with these ids in [`RELATED_TASK_IDS`], or without the member if there are no ids. No member that a reader
/// could take for it stays.
pub fn with_related_task_ids(message: &str, ids: &[String]) -> Result<String, Fault> {
    let object = Object::parse(message)?;
    let params = object.get("params").ok_or(Fault::Syntax)?;
    let params = Object::parse(params.get())?;
    let mut out = message.to_owned();
    // From the last to the first: what is before a change stays in its place.
    for (raw, meta) in metas(&params).iter().rev() {
        let mut meta = meta.render_filtered(|key| !is_related(key));
        if !ids.is_empty() {
            let list: Vec<String> = ids.iter().map(|id| quote(id)).collect();
            meta = prepend(&meta, RELATED_TASK_IDS, &format!("[{}]", list.join(",")));
        }
        out.replace_range(place_of(message, raw).ok_or(Fault::Syntax)?, &meta);
    }
    Ok(out)
}

/// Returns the members that a reader could take for the `_meta` of params.
fn metas<'a>(params: &Object<'a>) -> Vec<(&'a RawValue, Object<'a>)> {
    let metas = params.iter().filter(|(key, _)| may_be_read_as(key, META));
    metas
        .filter_map(|(_, raw)| Some((raw, Object::parse(raw.get()).ok()?)))
        .collect()
}

fn is_related(key: &str) -> bool {
    may_be_read_as(key, RELATED_TASK_IDS)
}

/// Returns `true` if some reader may find [`RELATED_TASK_IDS`] in a text that raincheck cannot read for certain: JSON
/// may escape each letter, readers may ignore case, and UTF-16 has a zero byte beside each letter.
pub fn may_name_tasks(text: &[u8]) -> bool {
    // The body may be in another encoding. Bytes that are no UTF-8 must not keep the name in it from being found.
    let text = String::from_utf8_lossy(text);
    let mut seen = String::with_capacity(text.len());
    let mut left = &*text;
    while let Some(letter) = left.chars().next() {
        let (letter, after) = match escaped(left) {
            Some(escaped) => (escaped, left.get(ESCAPE_BYTES..)),
            None => (letter, left.get(letter.len_utf8()..)),
        };
        if letter != '\0' {
            seen.push(folded(letter));
        }
        left = after.unwrap_or_default();
    }
    // The part of the name in which no letter has an escape of two letters, as "/" has.
    seen.contains("relatedtaskids")
}

/// The bytes of an escape such as `\u0041`.
const ESCAPE_BYTES: usize = 6;

/// The letter that an escape at the beginning of the text stands for.
fn escaped(text: &str) -> Option<char> {
    let hex = text.strip_prefix("\\u")?.get(..4)?;
    char::from_u32(u32::from_str_radix(hex, 16).ok()?)
}

fn declares_tasks(capabilities: &RawValue) -> bool {
    // Most requests declare nothing, and this search is cheaper than the parse.
    capabilities.get().contains(TASKS_EXTENSION)
        && Object::parse(capabilities.get())
            .ok()
            .and_then(|capabilities| capabilities.get_object("extensions"))
            .and_then(|extensions| extensions.get(TASKS_EXTENSION))
            .is_some_and(is_object)
}

/// The levels of RFC 5424 (server, Logging).
const LOG_LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];

fn known_log_level(raw: &RawValue) -> Result<Cow<'_, str>, RpcError> {
    super::json::string(raw)
        .filter(|level| is_log_level(level))
        .ok_or_else(|| RpcError::invalid_params("Invalid params: unknown log level"))
}

pub fn is_log_level(level: &str) -> bool {
    LOG_LEVELS.contains(&level)
}

/// Returns `true` if a message of this level is at or above the level that was asked for. A message of an unknown
/// level passes.
pub fn is_at_least(level: &str, asked: &str) -> bool {
    let rank = |name| LOG_LEVELS.iter().position(|known| *known == name);
    rank(level).is_none_or(|level| rank(asked).is_none_or(|asked| level >= asked))
}

/// Returns the params without the idempotency key. `None`: they have none.
pub fn without_idempotency_key(params: &str) -> Option<String> {
    let meta = Object::parse(params).ok()?.get_object(META)?;
    if !meta.contains(IDEMPOTENCY_KEY) {
        return None;
    }
    let rest = meta.render_filtered(|name| name != IDEMPOTENCY_KEY);
    set(params, META, &rest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ids_that_are_kept_are_said() {
        let message = r#"{"id":1, "params":{"_meta":{"a":1.10,"io.modelcontextprotocol/relatedTaskIds":["x","y"]},"name":"t"}}"#;
        let object = Object::parse(message).unwrap();
        let named = related_task_ids(&object.get_object("params").unwrap());
        assert_eq!(named.unwrap(), ["x", "y"]);
        assert_eq!(
            with_related_task_ids(message, &[]).unwrap(),
            r#"{"id":1, "params":{"_meta":{"a":1.10},"name":"t"}}"#
        );
        assert_eq!(
            with_related_task_ids(message, &["y\"".to_owned()]).unwrap(),
            r#"{"id":1, "params":{"_meta":{"io.modelcontextprotocol/relatedTaskIds":["y\""],"a":1.10},"name":"t"}}"#
        );
        let none = Object::parse(r#"{"_meta":{"io.modelcontextprotocol/relatedTaskIds":"x"}}"#);
        assert_eq!(related_task_ids(&none.unwrap()), Some(Vec::new()));
        for nothing in [
            "{}",
            r#"{"_meta":7}"#,
            r#"{"_meta":{"relatedTaskIds":["x"]}}"#,
        ] {
            assert_eq!(related_task_ids(&Object::parse(nothing).unwrap()), None);
        }
    }

    #[test]
    fn no_spelling_of_the_member_stays() {
        let name = RELATED_TASK_IDS;
        for (spelled, read) in [
            (format!(r#"{{"_meta":{{"{name}":["x"]}}}}"#), vec!["x"]),
            (
                r#"{"_m\u0065ta":{"io.modelcontextprotocol\/related\u0054askIds":["\u0078"]}}"#
                    .to_owned(),
                vec!["x"],
            ),
            (
                format!(r#"{{"_meta":{{"{}":["x"]}}}}"#, name.to_uppercase()),
                vec![],
            ),
            (format!(r#"{{"_META":{{"{name}":["x"]}}}}"#), vec![]),
            (
                format!(r#"{{"_meta":{{"{name}":[],"{name}":["x"]}}}}"#),
                vec![],
            ),
            (
                format!(r#"{{"_meta":{{}},"_meta":{{"{name}":["x"]}}}}"#),
                vec![],
            ),
            (
                "{\"_meta\":{\"io.modelcontextprotocol/relatedTa\u{17f}\u{212a}Ids\":[\"x\"]}}"
                    .to_owned(),
                vec![],
            ),
        ] {
            let params = Object::parse(&spelled).unwrap();
            assert_eq!(related_task_ids(&params).unwrap(), read, "{spelled}");
            let message = format!(r#"{{"id":1,"params":{spelled}}}"#);
            let without = with_related_task_ids(&message, &[]).unwrap();
            assert!(
                !without.contains('x') && !may_name_tasks(without.as_bytes()),
                "{without}"
            );
            assert!(may_name_tasks(message.as_bytes()), "{message}");
        }
        let utf16: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(may_name_tasks(&utf16));
        assert!(!may_name_tasks(br#"{"related":"task ids \u00"}"#));
    }

    #[test]
    fn the_server_does_not_see_the_key() {
        let without = without_idempotency_key;
        let params = r#"{"name":"t","_meta":{"a":1.10,"io.raincheck/idempotencyKey":"k"}}"#;
        assert_eq!(
            without(params).unwrap(),
            r#"{"name":"t","_meta":{"a":1.10}}"#
        );
        assert_eq!(without(r#"{"name":"t","_meta":{}}"#), None);
    }
}
