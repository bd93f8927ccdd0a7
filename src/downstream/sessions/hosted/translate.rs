//! Translates between a legacy client and a modern server. Everything that is not named here keeps its bytes. Pure.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::session::SessionEntry;
use crate::mcp::envelope;
use crate::mcp::error::code;
use crate::mcp::json::{Fault, Object, Writer, is_object, prepend, quote, raw, set};
use crate::mcp::meta::{CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION};
use crate::mcp::result::{self, ResultType};
use crate::mcp::version::{FIRST_WITH_MODES, LEGACY, LEGACY_FIRST, LEGACY_NEWEST, MODERN};

/// `_meta` keys with this prefix are the protocol's own. Those of the other era have no meaning.
const PROTOCOLS: &str = "io.modelcontextprotocol/";

/// The log level of a client that never set one. Servers of 2025 sent such clients their logs, too.
const LOG_LEVEL_DEFAULT: &str = "info";

const SERVER_UNNAMED: &str = r#"{"name":"unknown","version":"0"}"#;

/// The revision for a client that offers this one.
pub(super) fn agreed_version(offered: &str) -> &'static str {
    let mut known = LEGACY.into_iter().chain([LEGACY_FIRST]);
    let known = known.find(|known| *known == offered);
    known.unwrap_or(LEGACY_NEWEST)
}

/// Returns `true` if a session can be of this revision.
pub(super) fn is_known_version(version: &str) -> bool {
    agreed_version(version) == version
}

/// The result of `initialize`.
pub(super) fn initialized(
    version: &str,
    capabilities: &RawValue,
    server_info: Option<&RawValue>,
    instructions: Option<&RawValue>,
) -> String {
    let mut out = Writer::with_capacity(512);
    out.str("protocolVersion", version)
        .raw("capabilities", &server_capabilities(capabilities))
        .raw(
            "serverInfo",
            server_info.map_or(SERVER_UNNAMED, RawValue::get),
        );
    if let Some(instructions) = instructions {
        out.raw("instructions", instructions.get());
    }
    out.end()
}

/// The server's capabilities that both eras know. Extensions exist only in the modern era.
fn server_capabilities(capabilities: &RawValue) -> String {
    let object = Object::parse(capabilities.get()).unwrap_or_default();
    object.render_filtered(|key| !matches!(key, "extensions" | "tasks"))
}

/// The client's capabilities, as a modern request declares them. A legacy client's `tasks` belongs to another
/// protocol.
pub(super) fn client_capabilities(capabilities: &RawValue) -> String {
    let object = Object::parse(capabilities.get()).unwrap_or_default();
    object.render_filtered(|key| key != "tasks")
}

/// Returns a legacy request's params with all members by which a modern request describes itself.
pub(super) fn params(params: &Object<'_>, session: &SessionEntry) -> String {
    let mut out = Writer::with_capacity(512);
    for (key, value) in params.iter() {
        // A modern server would take `inputResponses` and `requestState` for answers to its own questions.
        if !matches!(key, "_meta" | "task" | "inputResponses" | "requestState") {
            out.raw(key, value.get());
        }
    }
    let mut meta = Writer::object();
    let theirs = params.get_object("_meta").unwrap_or_default();
    for (key, value) in theirs.iter() {
        if !key.starts_with(PROTOCOLS) {
            meta.raw(key, value.get());
        }
    }
    meta.str(PROTOCOL_VERSION, MODERN);
    if let Some(info) = &session.client_info {
        meta.raw("io.modelcontextprotocol/clientInfo", info.get());
    }
    meta.raw(CLIENT_CAPABILITIES, session.capabilities.get());
    meta.str(LOG_LEVEL, log_level(session));
    out.raw("_meta", &meta.end());
    out.end()
}

pub(super) fn log_level(session: &SessionEntry) -> &str {
    session.log_level.as_deref().unwrap_or(LOG_LEVEL_DEFAULT)
}

/// A modern server's result, as a legacy client knows it. `Err`: it is no object, or not the end of the request.
pub(super) fn result(method: &str, result: &str) -> Result<String, Fault> {
    let object = Object::parse(result)?;
    if result::type_of(&object) != ResultType::Complete {
        return Err(Fault::Syntax);
    }
    let cacheable = result::is_cacheable(method);
    let mut out = Writer::with_capacity(result.len());
    for (key, value) in object.iter() {
        match key {
            "resultType" => {}
            // Results of other methods are open: a member of this name is the server's own there.
            "ttlMs" | "cacheScope" if cacheable => {}
            "_meta" if is_object(value) => {
                if let Some(meta) = without_modern(value)? {
                    out.raw(key, &meta);
                }
            }
            // Any JSON since 2026-07-28; before, an object.
            "structuredContent" if !is_object(value) => {}
            "tools" if method == "tools/list" => {
                out.raw(key, &tools(value));
            }
            _ => {
                out.raw(key, value.get());
            }
        }
    }
    Ok(out.end())
}

/// `_meta` without what only modern messages have; `None` where nothing is left.
fn without_modern(meta: &RawValue) -> Result<Option<Cow<'_, str>>, Fault> {
    let object = Object::parse(meta.get())?;
    let is_modern = |key: &str| {
        key.strip_prefix(PROTOCOLS).is_some_and(|name| {
            matches!(
                name,
                "serverInfo" | "clientInfo" | "protocolVersion" | "logLevel"
            ) || matches!(name, "clientCapabilities" | "subscriptionId")
        })
    };
    if !object.iter().any(|(key, _)| is_modern(key)) {
        return Ok(Some(meta.get().into()));
    }
    let left = object.render_filtered(|key| !is_modern(key));
    Ok((left != "{}").then(|| left.into()))
}

/// Tools as a legacy client can read them. Many clients refuse the whole list if the output schema of one tool is not
/// an object's.
fn tools(list: &RawValue) -> Cow<'_, str> {
    let Ok(tools) = serde_json::from_str::<Vec<&RawValue>>(list.get()) else {
        return list.get().into();
    };
    let of_object = |tool: &Object<'_>| {
        tool.get("outputSchema").is_none_or(|schema| {
            let schema = Object::parse(schema.get()).unwrap_or_default();
            schema.get_str("type").as_deref() == Some("object")
        })
    };
    let mut changed = false;
    let tools: Vec<Cow<'_, str>> = tools
        .into_iter()
        .map(|text| match Object::parse(text.get()) {
            Ok(tool) if !of_object(&tool) => {
                changed = true;
                tool.render_filtered(|key| key != "outputSchema").into()
            }
            _ => text.get().into(),
        })
        .collect();
    if changed {
        format!("[{}]", tools.join(",")).into()
    } else {
        list.get().into()
    }
}

/// A modern server's error, as a legacy client knows it. Codes that a legacy client does not know are about the
/// request that raincheck made.
pub(super) fn error(method: &str, error: Box<RawValue>) -> Box<RawValue> {
    let error = result::well_formed(error);
    let number = match result::error_code(&error) {
        Some(code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION) => code::INTERNAL,
        Some(code::MISSING_CLIENT_CAPABILITY) => code::INVALID_PARAMS,
        // 2026-07-28 gives up the code for an unknown resource that earlier revisions define.
        Some(code::INVALID_PARAMS) if method == "resources/read" => code::LEGACY_RESOURCE_NOT_FOUND,
        Some(_) | None => return error,
    };
    let edited = set(error.get(), "code", &number.to_string());
    edited.and_then(raw).unwrap_or(error)
}

/// A question of a modern server, as a request to a legacy client. `number` is new and random.
pub(super) fn question(
    id: &str,
    number: &str,
    version: &str,
    method: &str,
    params: Option<&RawValue>,
) -> String {
    let params = params.map(|params| match Object::parse(params.get()) {
        Ok(object) if method == "elicitation/create" => {
            elicitation(params.get(), &object, number, version)
        }
        _ => params.get().into(),
    });
    envelope::request(&quote(id), method, params.as_deref())
}

/// Revision 2025-11-25 introduced modes, and requires an id for the visit of a URL.
fn elicitation<'a>(
    text: &'a str,
    object: &Object<'_>,
    number: &str,
    version: &str,
) -> Cow<'a, str> {
    match object.get_str("mode").as_deref() {
        Some("form") if version < FIRST_WITH_MODES => {
            object.render_filtered(|key| key != "mode").into()
        }
        Some("url") if !object.contains("elicitationId") => {
            prepend(text, "elicitationId", &quote(number)).into()
        }
        _ => text.into(),
    }
}

/// A notification of a modern server's subscription, as a legacy stream has it.
pub(super) fn notification(method: &str, params: Option<&RawValue>) -> Result<String, Fault> {
    let Some(params) = params else {
        return Ok(envelope::notification_without_params(method));
    };
    let left = match Object::parse(params.get())?.get("_meta") {
        Some(meta) if is_object(meta) => match without_modern(meta)? {
            Some(meta) => set(params.get(), "_meta", &meta)?,
            None => Object::parse(params.get())?.render_filtered(|key| key != "_meta"),
        },
        _ => params.get().to_owned(),
    };
    Ok(match left.as_str() {
        "{}" => envelope::notification_without_params(method),
        left => envelope::notification(method, left),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    fn entry() -> SessionEntry {
        SessionEntry {
            version: "2025-06-18".into(),
            capabilities: boxed(r#"{"elicitation":{}}"#),
            client_info: Some(boxed(r#"{"name":"c","version":"1"}"#)),
            log_level: None,
            uris: std::collections::BTreeSet::new(),
            renewed_ms: 0,
            lasts_ms: 0,
            since_ms: 0,
        }
    }

    #[test]
    fn versions_are_agreed_on() {
        for (offered, agreed) in [
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2024-11-05", "2024-11-05"),
            ("2024-10-07", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
        ] {
            assert_eq!(agreed_version(offered), agreed);
        }
        assert!(is_known_version("2024-11-05") && !is_known_version("2024-10-07"));
    }

    #[test]
    fn a_request_says_what_the_session_knows() {
        let theirs = r#"{"name":"t","arguments":{"n":1.10},"task":{},"_meta":{"progressToken":7,"a/b":1,"io.modelcontextprotocol/related-task":{}}}"#;
        assert_eq!(
            params(&Object::parse(theirs).unwrap(), &entry()),
            r#"{"name":"t","arguments":{"n":1.10},"_meta":{"progressToken":7,"a/b":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"info"}}"#
        );
    }

    #[test]
    fn results_lose_what_only_modern_clients_know() {
        let of = |method, text| result(method, text).unwrap();
        assert_eq!(
            of(
                "tools/call",
                r#"{"resultType":"complete","content":[],"ttlMs":1.0,"structuredContent":[1],"_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1}}"#
            ),
            r#"{"content":[],"ttlMs":1.0,"_meta":{"a":1}}"#
        );
        assert_eq!(
            of(
                "tools/list",
                r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b" ,"outputSchema":{"type":"object"}}],"_meta":{"io.modelcontextprotocol/serverInfo":{}}}"#
            ),
            r#"{"tools":[{"name":"a"},{"name":"b" ,"outputSchema":{"type":"object"}}]}"#
        );
        assert!(result("tools/list", "[]").is_err());
        for unfinished in ["input_required", "task"] {
            let unfinished = format!(r#"{{"resultType":"{unfinished}"}}"#);
            assert!(result("tools/call", &unfinished).is_err());
        }
    }

    #[test]
    fn errors_are_those_of_a_legacy_server() {
        let code_of = |method, text| result::error_code(&error(method, boxed(text))).unwrap();
        assert_eq!(
            code_of("tools/call", r#"{"code":-32020,"message":""}"#),
            -32603
        );
        assert_eq!(
            code_of("tools/call", r#"{"code":-32021,"message":""}"#),
            -32602
        );
        assert_eq!(
            code_of("tools/call", r#"{"code":-32602,"message":""}"#),
            -32602
        );
        assert_eq!(
            code_of("resources/read", r#"{"code":-32602,"message":""}"#),
            -32002
        );
        assert_eq!(code_of("tools/call", r#"{"code":7,"message":""}"#), 7);
        assert_eq!(code_of("tools/call", "[]"), -32603);
    }

    #[test]
    fn questions_fit_their_revision() {
        let of = |version, params| {
            question(
                "q",
                "n",
                version,
                "elicitation/create",
                Some(&boxed(params)),
            )
        };
        let form = r#"{"mode":"form","message":"m"}"#;
        assert!(of("2025-11-25", form).ends_with(r#""params":{"mode":"form","message":"m"}}"#));
        assert!(of("2025-06-18", form).ends_with(r#""params":{"message":"m"}}"#));
        let url = r#"{"mode":"url","url":"u"}"#;
        assert!(of("2025-11-25", url).contains(r#"{"elicitationId":"n","mode":"url","url":"u"}"#));
        assert_eq!(
            question("q", "n", "2025-11-25", "roots/list", None),
            r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#
        );
    }

    #[test]
    fn a_subscription_is_not_named() {
        let of = |params| notification("n", Some(&boxed(params))).unwrap();
        assert_eq!(
            of(r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#),
            r#"{"jsonrpc":"2.0","method":"n"}"#
        );
        assert_eq!(
            of(r#"{"uri":"u","_meta":{"io.modelcontextprotocol/subscriptionId":1,"a":2}}"#),
            r#"{"jsonrpc":"2.0","method":"n","params":{"uri":"u","_meta":{"a":2}}}"#
        );
    }
}
