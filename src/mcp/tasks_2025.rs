//! The words of the experimental tasks of revision 2025-11-25 (basic, Utilities, Tasks), as far as
//! they differ from the extension's. Pure; what is not named here keeps its bytes.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::value::RawValue;

use super::envelope;
use super::error::RpcError;
use super::input::{self, InputKind};
use super::json::{Fault, Object, Writer, is_object, place_of, prepend, quote, raw, set};
use super::meta::RELATED_TASK;
use super::result::for_legacy;
use super::version::LEGACY_NEWEST;

/// The notification about a new status of a task.
pub const STATUS: &str = "notifications/tasks/status";

/// `params.task` of a request: the client wants a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The `ttl` that the client wants; `None`: raincheck decides.
    pub ttl_ms: Option<u64>,
}

impl Wish {
    /// Returns `true` if the params have a `task` member, valid or not.
    pub fn is_in(params: &Object<'_>) -> bool {
        !matches!(Self::of(params), Ok(None))
    }

    /// Reads the wish; `None`: the params have none. Only an object is a wish, and the object may be empty.
    pub fn of(params: &Object<'_>) -> Result<Option<Self>, RpcError> {
        let Some(task) = params.get_object("task") else {
            return Ok(None);
        };
        let ttl_ms = match task.get("ttl").map(RawValue::get) {
            None | Some("null") => None,
            Some(number) => Some(milliseconds(number).ok_or_else(|| {
                RpcError::invalid_params("Invalid params: task.ttl must be a number")
            })?),
        };
        Ok(Some(Self { ttl_ms }))
    }
}

/// A JSON number of milliseconds, which clients may write with a fraction. A negative number counts as zero.
fn milliseconds(number: &str) -> Option<u64> {
    // A float would round numbers beyond 2^53.
    if let Ok(whole) = number.parse() {
        return Some(whole);
    }
    let number: f64 = number.parse().ok()?;
    if number <= 0.0 {
        return Some(0);
    }
    let duration = Duration::try_from_secs_f64(number / 1000.0).unwrap_or(Duration::MAX);
    Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Turns the extension's flat `CreateTaskResult` into this revision's, which has the task under `task`.
/// `None`: the result is no `CreateTaskResult`.
pub fn created(result: &str) -> Option<String> {
    let flat = Object::parse(result).ok()?;
    flat.get("taskId")?;
    let mut task = Writer::with_capacity(320);
    for (key, value) in flat.iter() {
        match key {
            "ttlMs" => task.raw("ttl", value.get()),
            "pollIntervalMs" => task.raw("pollInterval", value.get()),
            "taskId" | "status" | "statusMessage" | "createdAt" | "lastUpdatedAt" => {
                task.raw(key, value.get())
            }
            // Members of the extension that this revision lacks mean nothing to its clients.
            _ => &mut task,
        };
    }
    let mut out = Writer::with_capacity(340);
    out.raw("task", &task.end());
    Some(out.end())
}

/// A task's result for its client: with the `related-task` of the task, and without the members that only
/// 2026-07-28 has.
pub fn result_for_client(result: &str, task_id: &str) -> Result<String, Fault> {
    let plain = for_legacy(result)?;
    let meta = Object::parse(&plain)?
        .get("_meta")
        .filter(|raw| is_object(raw))
        .map_or("{}", RawValue::get);
    set(
        &plain,
        "_meta",
        &set(meta, RELATED_TASK, &related(task_id))?,
    )
}

/// A stored question (method and params) as a request to the client, with the `related-task` if the client
/// knows of the task.
pub fn question(request: &RawValue, id: &str, task_id: Option<&str>) -> Option<String> {
    let request = Object::parse(request.get()).ok()?;
    let params = request
        .get("params")
        .filter(|raw| is_object(raw))
        .map_or("{}", RawValue::get);
    let method = request.get_str("method")?;
    let mut params = Cow::Borrowed(params);
    if method == "elicitation/create" {
        params = identified(params, id);
    }
    if let Some(task_id) = task_id {
        params = with_related(&params, task_id)?.into();
    }
    Some(envelope::request(&quote(id), &method, Some(&params)))
}

/// Adds the id that a URL elicitation has in this revision, and not in 2026-07-28: the id of its request.
fn identified<'a>(params: Cow<'a, str>, id: &str) -> Cow<'a, str> {
    let object = Object::parse(&params).unwrap_or_default();
    let is_visit = object.get_str("mode").as_deref() == Some("url");
    if !is_visit || object.contains("elicitationId") {
        return params;
    }
    prepend(&params, "elicitationId", &quote(id)).into()
}

fn with_related(params: &str, task_id: &str) -> Option<String> {
    let meta = Object::parse(params).ok()?.get("_meta");
    let meta = meta
        .filter(|raw| is_object(raw))
        .map_or("{}", RawValue::get);
    let meta = set(meta, RELATED_TASK, &related(task_id)).ok()?;
    set(params, "_meta", &meta).ok()
}

/// The answer that a client's JSON-RPC response gives to a stored question. An error or a result of the wrong
/// shape is not a decision of the user: it cancels an elicitation, and refuses any other question.
pub fn answer(request: &RawValue, response: &Object<'_>) -> Box<RawValue> {
    if let Some(result) = response.get("result").and_then(without_related)
        && input::answers(request, &result)
    {
        return result;
    }
    let method = Object::parse(request.get()).ok();
    let method = method
        .as_ref()
        .and_then(|request| request.get_str("method"));
    if method.as_deref().and_then(InputKind::of) == Some(InputKind::Elicitation) {
        // The text is JSON. The null only takes the place of a panic.
        return raw(r#"{"action":"cancel"}"#.to_owned())
            .unwrap_or_else(|_| RawValue::NULL.to_owned());
    }
    let misshapen = || {
        RpcError::internal("The client's answer does not have the shape that was asked for")
            .to_raw()
    };
    let error = response.get("error").filter(|raw| is_object(raw));
    input::refusal(&error.map_or_else(misshapen, ToOwned::to_owned))
}

/// The client's result without the `related-task` of raincheck's task, which the server does not know.
fn without_related(result: &RawValue) -> Option<Box<RawValue>> {
    let object = Object::parse(result.get()).ok()?;
    let Some(meta) = object.get_object("_meta") else {
        return Some(result.to_owned());
    };
    if !meta.contains(RELATED_TASK) {
        return Some(result.to_owned());
    }
    let text = if meta.len() == 1 {
        object.render_filtered(|key| key != "_meta")
    } else {
        let rest = meta.render_filtered(|key| key != RELATED_TASK);
        set(result.get(), "_meta", &rest).ok()?
    };
    raw(text).ok()
}

/// The `_meta` of a message that belongs to a task.
pub fn related_meta(task_id: &str) -> String {
    let mut out = Writer::with_capacity(112);
    out.raw(RELATED_TASK, &related(task_id));
    out.end()
}

fn related(task_id: &str) -> String {
    let mut out = Writer::with_capacity(64);
    out.str("taskId", task_id);
    out.end()
}

/// An `initialize` result with these capabilities for tasks. `None`: the result agrees on another revision,
/// or nothing changes.
pub fn with_capabilities(
    result: &str,
    tasks: &str,
    keep_own: bool,
) -> Result<Option<String>, Fault> {
    let object = Object::parse(result)?;
    // No other legacy revision has tasks.
    if object.get_str("protocolVersion").as_deref() != Some(LEGACY_NEWEST) {
        return Ok(None);
    }
    let Some(capabilities) = object.get("capabilities").filter(|raw| is_object(raw)) else {
        return Ok(None);
    };
    if keep_own && Object::parse(capabilities.get())?.contains("tasks") {
        return Ok(None);
    }
    let capabilities = set(capabilities.get(), "tasks", tasks)?;
    set(result, "capabilities", &capabilities).map(Some)
}

/// The task support that raincheck writes into a tool of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The server's own words stay.
    Untouched,
    Optional,
    Required,
    /// Nothing, because calls of the tool never become tasks.
    Unsaid,
}

/// Returns a `tools/list` result in which each tool has the task support that `of` returns. `of` gets the tool's name
/// and the server's own value.
pub fn with_support(
    result: &str,
    mut of: impl FnMut(&str, Option<&str>) -> Support,
) -> Result<String, Fault> {
    let object = Object::parse(result)?;
    let listed = object.get("tools").ok_or(Fault::Syntax)?.get();
    let tools: Vec<&RawValue> = serde_json::from_str(listed).map_err(|_| Fault::Syntax)?;
    let mut out = String::with_capacity(result.len() + tools.len() * 48);
    let mut copied = 0;
    for tool in tools {
        // A tool that cannot be read keeps its bytes, and does not cost the client the rest of the list.
        let (Ok(members), Some(place)) = (Object::parse(tool.get()), place_of(result, tool)) else {
            continue;
        };
        let execution = members.get_object("execution").unwrap_or_default();
        let own = execution.get_str("taskSupport");
        let name = members.get_str("name").unwrap_or_default();
        let Some(edited) = edit(tool.get(), &members, of(&name, own.as_deref()))? else {
            continue;
        };
        out.push_str(result.get(copied..place.start).unwrap_or_default());
        out.push_str(&edited);
        copied = place.end;
    }
    out.push_str(result.get(copied..).unwrap_or_default());
    Ok(out)
}

fn edit(tool: &str, members: &Object<'_>, support: Support) -> Result<Option<String>, Fault> {
    let execution = members.get("execution").filter(|raw| is_object(raw));
    let word = match support {
        Support::Untouched => return Ok(None),
        Support::Optional => "\"optional\"",
        Support::Required => "\"required\"",
        Support::Unsaid => {
            let Some(execution) = members.get_object("execution") else {
                return Ok(None);
            };
            let rest = execution.render_filtered(|key| key != "taskSupport");
            return set(tool, "execution", &rest).map(Some);
        }
    };
    let execution = match execution {
        Some(execution) => set(execution.get(), "taskSupport", word)?,
        None => prepend("{}", "taskSupport", word),
    };
    set(tool, "execution", &execution).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    #[test]
    fn only_an_object_wishes_for_a_task() {
        let wish = |text| Wish::of(&Object::parse(text).unwrap()).map_err(|error| error.code);
        let ttl = |ttl_ms| Ok(Some(Wish { ttl_ms }));
        for none in [
            "{}",
            r#"{"task":null}"#,
            r#"{"task":true}"#,
            r#"{"task":[]}"#,
        ] {
            assert_eq!(wish(none), Ok(None), "{none}");
        }
        assert_eq!(wish(r#"{"task":{}}"#), ttl(None));
        assert_eq!(wish(r#"{"task":{"ttl":null}}"#), ttl(None));
        assert_eq!(wish(r#"{"task":{"ttl":60000}}"#), ttl(Some(60_000)));
        assert_eq!(wish(r#"{"task":{"ttl":300.5}}"#), ttl(Some(300)));
        assert_eq!(wish(r#"{"task":{"ttl":-1}}"#), ttl(Some(0)));
        assert_eq!(wish(r#"{"task":{"ttl":1e99}}"#), ttl(Some(u64::MAX)));
        assert_eq!(wish(r#"{"task":{"ttl":"1"}}"#), Err(-32602));
    }

    #[test]
    fn a_created_task_has_the_old_names_and_is_nested() {
        let flat = r#"{"resultType":"task","taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"u","ttlMs":5,"pollIntervalMs":2}"#;
        assert_eq!(
            created(flat).unwrap(),
            r#"{"task":{"taskId":"t","status":"working","createdAt":"c","lastUpdatedAt":"u","ttl":5,"pollInterval":2}}"#
        );
        assert_eq!(created(r#"{"content":[]}"#), None);
    }

    #[test]
    fn a_result_is_tied_to_its_task() {
        let of = |text| result_for_client(text, "t").unwrap();
        assert_eq!(
            of(r#"{"resultType":"complete","content":[ 1.10 ]}"#),
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"content":[ 1.10 ]}"#
        );
        assert_eq!(
            of(r#"{"_meta":{"a":1}, "content":[]}"#),
            r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"},"a":1}, "content":[]}"#
        );
        let other = of(r#"{"content":[],"structuredContent":[1]}"#);
        assert!(!other.contains("structuredContent"), "{other}");
    }

    #[test]
    fn a_question_is_tied_to_its_task() {
        assert_eq!(
            question(&boxed(r#"{"method":"roots/list"}"#), "i", Some("t")).unwrap(),
            r#"{"jsonrpc":"2.0","id":"i","method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}"#
        );
    }

    #[test]
    fn a_visit_to_a_url_has_an_id() {
        let of = |params: &str| {
            let text = format!(r#"{{"method":"elicitation/create","params":{params}}}"#);
            question(&boxed(&text), "i", None).unwrap()
        };
        let visit = of(r#"{"mode":"url","url":"u"}"#);
        assert!(visit.ends_with(r#""params":{"elicitationId":"i","mode":"url","url":"u"}}"#));
        for kept in [
            r#"{"mode":"url","elicitationId":"own"}"#,
            r#"{"message":"m"}"#,
        ] {
            assert!(of(kept).ends_with(&format!("\"params\":{kept}}}")));
        }
    }

    #[test]
    fn an_error_decides_nothing() {
        let elicitation = boxed(r#"{"method":"elicitation/create","params":{}}"#);
        let sampling = boxed(r#"{"method":"sampling/createMessage","params":{}}"#);
        let of = |request: &RawValue, text| {
            let answer = answer(request, &Object::parse(text).unwrap());
            answer.get().to_owned()
        };
        let accept = r#"{"result":{"action":"accept","content":{}, "_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}}"#;
        assert_eq!(
            of(&elicitation, accept),
            r#"{"action":"accept","content":{}}"#
        );
        let cancel = r#"{"action":"cancel"}"#;
        for nothing in [
            r#"{"error":{"code":-32601,"message":"no"}}"#,
            r#"{"result":{"action":"maybe"}}"#,
            r#"{"result":7}"#,
            "{}",
        ] {
            assert_eq!(of(&elicitation, nothing), cancel, "{nothing}");
        }
        let refused = of(&sampling, r#"{"error":{"code":-1,"message":"no"}}"#);
        let refused = boxed(&refused);
        let error = input::refused(&refused).unwrap();
        assert_eq!(error.get(), r#"{"code":-1,"message":"no"}"#);
    }

    #[test]
    fn capabilities_are_replaced_for_this_revision_only() {
        let edit = |text, keep| with_capabilities(text, "{}", keep).unwrap();
        let own =
            r#"{ "protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"list":{}} }}"#;
        assert_eq!(
            edit(own, false).unwrap(),
            r#"{ "protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{} }}"#
        );
        assert_eq!(edit(own, true), None);
        let none = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
        assert!(edit(none, true).unwrap().contains(r#""tasks":{}"#));
        let older = r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#;
        assert_eq!(edit(older, false), None);
    }

    #[test]
    fn tools_say_what_they_are_told_and_keep_their_bytes() {
        let list = r#"{ "tools":[ {"name":"a", "n":1.10},{"name":"b","execution":{"taskSupport":"forbidden","x":1 }} ,{"name":"c","execution":{"taskSupport":"required"}},{"name":"d"}], "z":[] }"#;
        let edited = with_support(list, |name, own| match (name, own) {
            ("a", None) => Support::Optional,
            ("b", Some("forbidden")) => Support::Required,
            ("c", Some("required")) => Support::Unsaid,
            _ => Support::Untouched,
        });
        assert_eq!(
            edited.unwrap(),
            r#"{ "tools":[ {"execution":{"taskSupport":"optional"},"name":"a", "n":1.10},{"name":"b","execution":{"taskSupport":"required","x":1 }} ,{"name":"c","execution":{}},{"name":"d"}], "z":[] }"#
        );
    }
}
