//! Translates a client's params for the era of the wrapped server. Pure. What is not named here keeps its
//! bytes.

use crate::mcp::envelope;
use crate::mcp::json::{Fault, Object, Writer, is_object, prepend, quote, set, set_in};
use crate::mcp::meta::{CLIENT_CAPABILITIES, PROGRESS_TOKEN, PROTOCOL_VERSION, TASKS_EXTENSION};
use crate::mcp::version::MODERN;
use crate::upstream::port::{Retry, UpstreamRequest};
use crate::upstream::request_id::RequestId;

/// One JSON-RPC request.
pub(super) fn request(id: &RequestId, method: &str, params: &str) -> String {
    envelope::request(id.as_json(), method, Some(params))
}

/// Params for a modern server. The Tasks extension is declared only if the server may answer with tasks of its
/// own, a legacy `task` member is left out, and the progress token is raincheck's.
pub(super) fn for_modern(request: &UpstreamRequest, token: &RequestId) -> Result<String, Fault> {
    let params = Object::parse(&request.params)?;
    let retry = request.retry.as_deref();
    let meta = params
        .get("_meta")
        .filter(|raw| is_object(raw))
        .map_or("{}", |raw| raw.get());
    let token = request.wants_progress.then_some(token);
    let meta = meta_for_modern(meta, token, request.native_task)?;
    // The answers of the retry take the place of those that the client sent with its own request.
    let is_left_out = |key: &str| {
        key == "task" || (retry.is_some() && matches!(key, "inputResponses" | "requestState"))
    };
    let mut text = if params.iter().any(|(key, _)| is_left_out(key)) {
        set(
            &params.render_filtered(|key| !is_left_out(key)),
            "_meta",
            &meta,
        )?
    } else {
        set_in(&request.params, &params, "_meta", &meta)?
    };
    if let Some(Retry {
        input_responses,
        request_state,
    }) = retry
    {
        // Members of these names were left out above, so that none is there twice.
        text = prepend(&text, "inputResponses", input_responses);
        if let Some(state) = request_state {
            text = prepend(&text, "requestState", &quote(state));
        }
    }
    Ok(text)
}

fn meta_for_modern(
    meta: &str,
    token: Option<&RequestId>,
    native_task: bool,
) -> Result<String, Fault> {
    let object = Object::parse(meta)?;
    let capabilities = object.get(CLIENT_CAPABILITIES).filter(|_| !native_task);
    let text = match capabilities {
        Some(all) => {
            let rest = without_tasks(all.get())?;
            set_in(meta, &object, CLIENT_CAPABILITIES, &rest)?
        }
        None => meta.to_owned(),
    };
    match (object.contains(PROGRESS_TOKEN), token) {
        (true, Some(token)) => set(&text, PROGRESS_TOKEN, token.as_json()),
        (false, Some(token)) => Ok(prepend(&text, PROGRESS_TOKEN, token.as_json())),
        (true, None) => Ok(Object::parse(&text)?.render_filtered(|key| key != PROGRESS_TOKEN)),
        (false, None) => Ok(text),
    }
}

/// A client's capabilities without the Tasks extension.
pub(super) fn without_tasks(capabilities: &str) -> Result<String, Fault> {
    let object = Object::parse(capabilities)?;
    match object
        .get_object("extensions")
        .filter(|all| all.contains(TASKS_EXTENSION))
    {
        None => Ok(capabilities.to_owned()),
        Some(extensions) if extensions.len() == 1 => {
            Ok(object.render_filtered(|key| key != "extensions"))
        }
        Some(extensions) => set(
            capabilities,
            "extensions",
            &extensions.render_filtered(|k| k != TASKS_EXTENSION),
        ),
    }
}

/// Params for a legacy server, without what only a modern server knows.
pub(super) fn for_legacy(request: &UpstreamRequest, token: &RequestId) -> Result<String, Fault> {
    let params = Object::parse(&request.params)?;
    let text = params.render_filtered(|key| {
        !matches!(key, "_meta" | "task" | "inputResponses" | "requestState")
    });
    let meta = params.get_object("_meta").unwrap_or_default();
    let mut kept = Writer::object();
    let mut any = false;
    for (key, value) in meta.iter() {
        // Names under this prefix belong to 2026-07-28, and a token of raincheck's own stands in place of the client's.
        if !key.starts_with("io.modelcontextprotocol/") && key != PROGRESS_TOKEN {
            kept.raw(key, value.get());
            any = true;
        }
    }
    if request.wants_progress {
        kept.raw(PROGRESS_TOKEN, token.as_json());
        any = true;
    }
    let text = if any {
        set(&text, "_meta", &kept.end())?
    } else {
        text
    };
    if request.native_task {
        set(&text, "task", "{}")
    } else {
        Ok(text)
    }
}

/// The capabilities that raincheck declares to a legacy server for a modern client: what the client can answer.
pub(super) fn legacy_capabilities(capabilities: &str) -> String {
    let object = Object::parse(capabilities).unwrap_or_default();
    let mut out = Writer::object();
    for key in ["elicitation", "sampling", "roots"] {
        if let Some(value) = object.get(key) {
            out.raw(key, value.get());
        }
    }
    out.end()
}

/// `params` of a request of raincheck's own to a modern server, with further members as JSON.
pub(super) fn own_params(capabilities: &str, members: &[(&str, &str)]) -> String {
    let mut meta = Writer::object();
    meta.str(PROTOCOL_VERSION, MODERN);
    meta.raw("io.modelcontextprotocol/clientInfo", &client_info());
    meta.raw(CLIENT_CAPABILITIES, capabilities);
    let mut out = Writer::object();
    for (key, value) in members {
        out.raw(key, value);
    }
    out.raw("_meta", &meta.end());
    out.end()
}

pub(super) fn client_info() -> String {
    format!(
        r#"{{"name":"raincheck","version":"{}"}}"#,
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn request(params: &str) -> UpstreamRequest {
        UpstreamRequest::new([0; 16], "tools/call", params).with_progress(true)
    }

    fn seven() -> RequestId {
        RequestId::number(7)
    }

    const PARAMS: &str = r#"{"name":"t", "arguments":{"n":1.10},"task":{},"_meta":{"progressToken":"c","a/b":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;

    #[test]
    fn a_modern_server_never_hears_of_tasks() {
        assert_eq!(
            for_modern(&request(PARAMS), &seven()).unwrap(),
            r#"{"name":"t","arguments":{"n":1.10},"_meta":{"progressToken":7,"a/b":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}"#
        );
        let mut retry = request(PARAMS);
        retry.wants_progress = false;
        retry.retry = Some(Arc::new(Retry {
            input_responses: r#"{"k":{}}"#.into(),
            request_state: Some("s\"".into()),
        }));
        let text = for_modern(&retry, &seven()).unwrap();
        assert!(
            text.starts_with(r#"{"requestState":"s\"","inputResponses":{"k":{}},"name":"t""#),
            "{text}"
        );
        assert!(
            !text.contains("progressToken") && !text.contains("\"task\""),
            "{text}"
        );
    }

    #[test]
    fn a_legacy_server_hears_nothing_of_the_modern_world() {
        assert_eq!(
            for_legacy(&request(PARAMS), &seven()).unwrap(),
            r#"{"_meta":{"a/b":1,"progressToken":7},"name":"t","arguments":{"n":1.10}}"#
        );
        assert_eq!(
            legacy_capabilities(r#"{"sampling":{"tools":{}},"extensions":{},"roots":{}}"#),
            r#"{"sampling":{"tools":{}},"roots":{}}"#
        );
    }
}
