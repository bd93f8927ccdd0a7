//! Translates results and errors of the wrapped server between the eras. Everything that is not named here
//! keeps its bytes.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::{RpcError, code};
use super::json::{Fault, Object, Writer, is_object, prepend, raw, set, string};
use super::meta::RELATED_TASK;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The kind of a modern server's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    Complete,
    InputRequired,
    /// A result of an extension that the client declared, such as the upstream's own tasks.
    Other,
}

/// Absent means complete (basic, `ResultType`).
pub fn result_type(result: &RawValue) -> Result<ResultType, Fault> {
    Ok(type_of(&Object::parse(result.get())?))
}

/// The type of a result that is parsed. Without one it is complete.
pub fn type_of(result: &Object<'_>) -> ResultType {
    match result.get_str("resultType").as_deref() {
        None | Some("complete") => ResultType::Complete,
        Some("input_required") => ResultType::InputRequired,
        Some(_) => ResultType::Other,
    }
}

/// Returns `true` if a result is an error of the tool (tools, Error Handling).
pub fn is_tool_error(result: &str) -> bool {
    // Few results have both words, and a search for them is far quicker than a parser.
    if !(result.contains("isError") && result.contains("true")) {
        return false;
    }
    Object::parse(result)
        .ok()
        .and_then(|object| object.get("isError"))
        .is_some_and(|is_error| is_error.get() == "true")
}

/// A legacy server's result without a `resultType` of the server's own. `resultType` means nothing before
/// 2026-07-28: a legacy result is always complete, and its call must not be sent again.
pub fn without_type(result: Box<RawValue>) -> Box<RawValue> {
    let rest = Object::parse(result.get()).ok().and_then(|object| {
        let is_type = |key: &str| key == "resultType";
        // All members of this name, because a reader may take the last of two.
        let types: Vec<_> = object.iter().filter(|(key, _)| is_type(key)).collect();
        let is_fit = match types.as_slice() {
            [] => true,
            // The server wrote the one value that is right, so the result keeps its bytes.
            [(_, word)] => word.get() == "\"complete\"",
            _ => false,
        };
        (!is_fit).then(|| object.render_filtered(|key| !is_type(key)))
    });
    match rest.map(raw) {
        Some(Ok(rest)) => rest,
        Some(Err(_)) | None => result,
    }
}

/// The result as a task stores it: with `resultType` if a legacy server gave none, and without the server's
/// `related-task`. Every other byte stays.
pub fn for_task(result: Box<RawValue>) -> Result<Box<RawValue>, Fault> {
    let edited = edited_for_task(&result, &Object::parse(result.get())?)?;
    edited.map_or(Ok(result), raw)
}

/// The kind of a result. A complete one is as [`for_task`] gives it; the others are as the server gave them.
pub fn typed_for_task(result: Box<RawValue>) -> Result<(ResultType, Box<RawValue>), Fault> {
    let object = Object::parse(result.get())?;
    let kind = type_of(&object);
    let edited = match kind {
        ResultType::Complete => edited_for_task(&result, &object)?,
        ResultType::InputRequired | ResultType::Other => None,
    };
    Ok((kind, edited.map_or(Ok(result), raw)?))
}

/// `None`: the task stores the result as the server gave it.
fn edited_for_task(result: &RawValue, object: &Object<'_>) -> Result<Option<String>, Fault> {
    let has_type = object.contains("resultType");
    let meta = object
        .get_object("_meta")
        .filter(|meta| meta.contains(RELATED_TASK));
    if has_type && meta.is_none() {
        return Ok(None);
    }
    let mut text = Cow::Borrowed(result.get());
    if let Some(meta) = meta {
        let rest = meta.render_filtered(|key| key != RELATED_TASK);
        text = set(&text, "_meta", &rest)?.into();
    }
    // Put first, where `for_legacy` removes it without another change.
    if !has_type {
        text = prepend(&text, "resultType", "\"complete\"").into();
    }
    Ok(Some(text.into_owned()))
}

/// A call's result for a legacy client: without `resultType`, which only modern results have, and without a
/// `structuredContent` that is no object, which legacy clients refuse.
pub fn for_legacy(result: &str) -> Result<String, Fault> {
    // Removed in the form in which raincheck adds it: everything else keeps its bytes.
    let added = result.strip_prefix(r#"{"resultType":"complete","#);
    let text = added.map_or(Cow::Borrowed(result), |rest| format!("{{{rest}").into());
    let object = Object::parse(&text)?;
    let content = object.get("structuredContent");
    let has_other = content.is_some_and(|content| !is_object(content));
    if !has_other && !object.contains("resultType") {
        return Ok(text.into_owned());
    }
    let is_left = |key: &str| key != "resultType" && !(has_other && key == "structuredContent");
    Ok(object.render_filtered(is_left))
}

/// A legacy server's result for a modern client: with `resultType`, with the caching hints that revision
/// 2026-07-28 demands of lists and reads, and with the `serverInfo`.
pub fn from_legacy(
    method: &str,
    result: Box<RawValue>,
    server_info: Option<&RawValue>,
) -> Result<Box<RawValue>, Fault> {
    let mut text = for_task(result)?.get().to_owned();
    if is_cacheable(method) {
        let object = Object::parse(&text)?;
        let (ttl, scope) = (object.contains("ttlMs"), object.contains("cacheScope"));
        // A legacy server gives no hints. With these values no cache keeps the result or gives it to another user.
        if !scope {
            text = prepend(&text, "cacheScope", "\"private\"");
        }
        if !ttl {
            text = prepend(&text, "ttlMs", "0");
        }
    }
    if let Some(info) = server_info {
        text = with_server_info(&text, info)?;
    }
    raw(text)
}

/// The result with `_meta["io.modelcontextprotocol/serverInfo"]`, if the server gave none.
pub fn with_server_info(result: &str, server_info: &RawValue) -> Result<String, Fault> {
    let meta = Object::parse(result)?
        .get("_meta")
        .map_or("{}", RawValue::get);
    // A `_meta` that is no object has no place for a member, and stays as the server wrote it.
    if !meta.starts_with('{') || Object::parse(meta)?.contains(SERVER_INFO) {
        return Ok(result.to_owned());
    }
    set(
        result,
        "_meta",
        &prepend(meta, SERVER_INFO, server_info.get()),
    )
}

/// Returns `true` if results of this method must have a time for which they may be cached (server, Caching).
pub fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "server/discover"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

/// An error object of the wrapped server for a client of 2026-07-28. The error stays verbatim, except for
/// codes that a 2026 server must not use and codes that are about raincheck's own request instead of the
/// client's.
pub fn error_for_client(error: Box<RawValue>) -> Box<RawValue> {
    let error = well_formed(error);
    match error_code(&error).unwrap_or(code::INTERNAL) {
        code::LEGACY_RESOURCE_NOT_FOUND => {
            let edited = set(error.get(), "code", &code::INVALID_PARAMS.to_string());
            edited.and_then(raw).unwrap_or(error)
        }
        code::LEGACY_URL_ELICITATION => RpcError::new(code::INTERNAL, visits(&error))
            .with_data(error.get().to_owned())
            .to_raw(),
        _ => error,
    }
}

/// The error's own message and its URLs. Many clients show their models nothing but the message of an error.
fn visits(error: &RawValue) -> String {
    let mut message = "The server asks for a visit to a URL first".to_owned();
    let object = Object::parse(error.get()).unwrap_or_default();
    let visits = object
        .get_object("data")
        .and_then(|data| serde_json::from_str(data.get("elicitations")?.get()).ok());
    let visits: Vec<&RawValue> = visits.unwrap_or_default();
    let urls = visits
        .iter()
        .filter_map(|visit| Object::parse(visit.get()).ok()?.get_str("url"));
    for said in object.get_str("message").into_iter().chain(urls) {
        message.push_str(": ");
        message.push_str(&said);
    }
    message
}

/// A legacy server's error for a resource that does not exist, as revision 2026-07-28 words it (server,
/// Resources, Error Handling). Some servers send this error without its code.
pub fn resource_error(error: Box<RawValue>, uri: &str) -> Box<RawValue> {
    let message = error_message(&error).unwrap_or_default().into_owned();
    let lower = message.to_ascii_lowercase();
    let says_unknown = lower.contains("unknown resource") || lower.contains("resource not found");
    match error_code(&error) {
        Some(code::LEGACY_RESOURCE_NOT_FOUND) => {}
        Some(0) if says_unknown => {}
        _ => return error,
    }
    let mut data = Writer::object();
    data.str("uri", uri);
    RpcError::invalid_params(message)
        .with_data(data.end())
        .to_raw()
}

/// An error object of the wrapped server that ends a task: errors about raincheck's own request become
/// internal errors.
pub fn error_for_task(error: Box<RawValue>) -> Box<RawValue> {
    let error = error_for_client(error);
    let number = error_code(&error).unwrap_or(code::INTERNAL);
    if (code::UNSUPPORTED_VERSION..=code::HEADER_MISMATCH).contains(&number) {
        return RpcError::internal(
            "The server refused the request that the proxy made for this call",
        )
        .with_data(error.get().to_owned())
        .to_raw();
    }
    error
}

pub fn error_code(error: &RawValue) -> Option<i64> {
    Object::parse(error.get())
        .ok()?
        .get("code")?
        .get()
        .parse()
        .ok()
}

pub fn error_message(error: &RawValue) -> Option<Cow<'_, str>> {
    Object::parse(error.get()).ok()?.get_str("message")
}

/// The error as it is, if clients can read it: with a whole number as its code, and a text as its message. Otherwise an
/// internal error around it, with its words.
pub fn well_formed(error: Box<RawValue>) -> Box<RawValue> {
    if error_message(&error).is_some() && error_code(&error).is_some() {
        return error;
    }
    let mut said = "The server answered with a malformed error".to_owned();
    if let Some(words) = error_message(&error).or_else(|| string(&error)) {
        said = format!("{said}: {words}");
    }
    RpcError::new(code::INTERNAL, said)
        .with_data(error.get().to_owned())
        .to_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxed(text: &str) -> Box<RawValue> {
        raw(text.to_owned()).unwrap()
    }

    #[test]
    fn a_task_keeps_its_result_but_for_two_edits() {
        let plain = r#"{ "content":[],"n":1.10,"_meta":{"a":1,"io.modelcontextprotocol/related-task":{"taskId":"x"}} }"#;
        assert_eq!(
            for_task(boxed(plain)).unwrap().get(),
            r#"{"resultType":"complete", "content":[],"n":1.10,"_meta":{"a":1} }"#
        );
        let done = r#"{"resultType":"complete" , "content":[]}"#;
        assert_eq!(for_task(boxed(done)).unwrap().get(), done);
        assert!(for_task(boxed("[]")).is_err());
    }

    #[test]
    fn a_legacy_result_has_no_type_but_complete() {
        for (said, expected) in [
            (r#"{"a":1.10 }"#, r#"{"a":1.10 }"#),
            (
                r#"{ "resultType":"complete" }"#,
                r#"{ "resultType":"complete" }"#,
            ),
            (
                r#"{"resultType":"input_required","requestState":"s"}"#,
                r#"{"requestState":"s"}"#,
            ),
            (
                r#"{"resultType":"complete","a":1.10,"resultType":"task"}"#,
                r#"{"a":1.10}"#,
            ),
            (r#"{"resultType":7}"#, "{}"),
            ("[]", "[]"),
        ] {
            assert_eq!(without_type(boxed(said)).get(), expected);
        }
    }

    #[test]
    fn the_legacy_face_has_only_what_it_knows() {
        for (result, expected) in [
            (
                r#"{"resultType":"complete","content":[ ],"structuredContent":{"n":1.10}}"#,
                r#"{"content":[ ],"structuredContent":{"n":1.10}}"#,
            ),
            (
                r#"{"resultType":"complete","structuredContent":[1],"content":[]}"#,
                r#"{"content":[]}"#,
            ),
            (
                r#"{"content":[],"structuredContent":7}"#,
                r#"{"content":[]}"#,
            ),
            (r#"{"content":[], "x":1}"#, r#"{"content":[], "x":1}"#),
        ] {
            assert_eq!(for_legacy(result).unwrap(), expected);
        }
    }

    #[test]
    fn lists_of_legacy_servers_get_caching_hints() {
        let info = boxed(r#"{"name":"s","version":"1"}"#);
        assert_eq!(
            from_legacy("tools/list", boxed(r#"{"tools":[]}"#), Some(&info))
                .unwrap()
                .get(),
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"ttlMs":0,"cacheScope":"private","resultType":"complete","tools":[]}"#
        );
    }

    #[test]
    fn codes_that_a_2026_server_must_not_emit_are_replaced() {
        let code_of = |text| error_code(&error_for_task(boxed(text))).unwrap();
        assert_eq!(code_of(r#"{"code":-32002,"message":"m"}"#), -32602);
        assert_eq!(code_of(r#"{"code":-32042,"message":"m"}"#), -32603);
        let visit =
            r#"{"code":-32042,"message":"m","data":{"elicitations":[{"url":"https://a"}]}}"#;
        assert_eq!(
            error_message(&error_for_task(boxed(visit))).unwrap(),
            "The server asks for a visit to a URL first: m: https://a"
        );
        assert_eq!(code_of(r#"{"code":-32021,"message":"m"}"#), -32603);
        assert_eq!(code_of(r#"{"code":7,"message":"m"}"#), 7);
        for malformed in [
            "[]",
            r#""m""#,
            r#"{"code":"E","message":"m"}"#,
            r#"{"code":-32000.0,"message":"m"}"#,
            r#"{"code":1}"#,
            r#"{"code":1,"message":null}"#,
        ] {
            assert_eq!(code_of(malformed), -32603);
            let error = error_for_client(boxed(malformed));
            assert!(error_message(&error).is_some() && error.get().contains(malformed));
        }
        let unknown = boxed(r#"{"code":0,"message":"Unknown resource: a:b"}"#);
        assert_eq!(
            resource_error(unknown, "a:b").get(),
            r#"{"code":-32602,"message":"Unknown resource: a:b","data":{"uri":"a:b"}}"#
        );
        let other = boxed(r#"{"code":0,"message":"disk on fire"}"#);
        assert_eq!(
            resource_error(other, "a:b").get(),
            r#"{"code":0,"message":"disk on fire"}"#
        );
    }
}
