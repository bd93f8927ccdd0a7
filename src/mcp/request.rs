//! One message of a modern client, read strictly: a message that two parsers could read differently is
//! refused, so that the server executes only what raincheck checked.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::error::RpcError;
use super::json::{Object, is_object};

const RESERVED: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const RESERVED_PARAMS: [&str; 9] = [
    "_meta",
    "name",
    "uri",
    "arguments",
    "task",
    "taskId",
    "inputResponses",
    "requestState",
    "notifications",
];

/// The members of a message, with what every reader of it asks.
#[derive(Debug)]
pub struct Envelope<'a> {
    pub members: Object<'a>,
    /// The method, where it is a string.
    pub method: Option<Cow<'a, str>>,
    /// `true` if two readers could see different messages in the members.
    pub is_ambiguous: bool,
}

impl<'a> Envelope<'a> {
    /// The id of the request, where every reader sees the same.
    pub fn request_id(&self) -> Option<&'a RawValue> {
        let is_request = !self.is_ambiguous && self.members.contains("method");
        let id = self.members.get("id").filter(|id| is_request_id(id));
        id.filter(|_| is_request)
    }

    pub fn of(members: Object<'a>) -> Self {
        Self {
            method: members.get_str("method"),
            is_ambiguous: members.is_ambiguous(&RESERVED),
            members,
        }
    }
}

/// A client's message.
#[derive(Debug)]
pub enum ClientMessage<'a> {
    Request(Request<'a>),
    Notification,
}

#[derive(Debug)]
pub struct Request<'a> {
    /// A string or a number, echoed byte for byte.
    pub id: &'a RawValue,
    pub method: Cow<'a, str>,
    /// `{}` where the message has none.
    pub params_text: &'a str,
    pub params: Object<'a>,
}

/// Why a message was refused, with its id if the id could be read.
#[derive(Debug)]
pub struct Refused {
    pub id: Option<Box<RawValue>>,
    pub error: RpcError,
}

impl<'a> ClientMessage<'a> {
    /// Reads one JSON-RPC message; `params` are the members of its params.
    pub fn of(envelope: &Envelope<'a>, params: Option<Object<'a>>) -> Result<Self, Refused> {
        let object = &envelope.members;
        let anonymous = |error| Refused { id: None, error };
        let id = object.get("id").filter(|id| is_request_id(id));
        let refused = |message| Refused {
            id: id.map(ToOwned::to_owned),
            error: RpcError::invalid_request(message),
        };
        if envelope.is_ambiguous {
            // Two readers may find different ids in such a message, so the error carries none.
            return Err(anonymous(RpcError::invalid_request(
                "Invalid request: ambiguous members",
            )));
        }
        if object.get_str("jsonrpc").as_deref() != Some("2.0") {
            return Err(refused("Invalid request: jsonrpc must be \"2.0\""));
        }
        // A modern server asks by `input_required` results only, so no client has an answer to send.
        if object.contains("result") || object.contains("error") {
            return Err(refused(
                "Invalid request: clients send requests and notifications only",
            ));
        }
        let method = envelope
            .method
            .clone()
            .ok_or_else(|| refused("Invalid request: method must be a string"))?;
        let params_text = match object.get("params") {
            None => "{}",
            Some(params) if is_object(params) => params.get(),
            Some(_) => return Err(refused("Invalid request: params must be an object")),
        };
        if !object.contains("id") {
            return Ok(Self::Notification);
        }
        let id = id.ok_or_else(|| refused("Invalid request: id must be a string or a number"))?;
        let params = params.unwrap_or_default();
        if params.is_ambiguous(&RESERVED_PARAMS) {
            return Err(refused("Invalid request: ambiguous params"));
        }
        Ok(Self::Request(Request {
            id,
            method,
            params_text,
            params,
        }))
    }
}

impl Request<'_> {
    /// Returns `true` if JSON-RPC allows the id.
    pub fn has_id(&self) -> bool {
        is_request_id(self.id)
    }

    /// Returns the value that `Mcp-Name` mirrors for this method (streamable-http, Standard Request Headers, and
    /// tasks.md, Routing Headers).
    pub fn name(&self) -> Option<Cow<'_, str>> {
        match &*self.method {
            "tools/call" | "prompts/get" => self.params.get_str("name"),
            "resources/read" => self.params.get_str("uri"),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.params.get_str("taskId"),
            _ => None,
        }
    }
}

/// Why a text that is no JSON object is refused. A batch is none: revision 2026-07-28 has no batches.
pub fn no_object(text: &str) -> RpcError {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(_) => RpcError::invalid_request("Invalid request: not a JSON-RPC object"),
        Err(_) => RpcError::parse("Parse error: not JSON"),
    }
}

/// Checks a message of a legacy session that is passed on as it is. If a rule may refuse calls, it must be
/// certain whether the message is a call, and of which tool. A batch is refused, because the rules decide
/// about one call. The server reports all other mistakes.
pub fn check_on_session(
    envelope: &Envelope<'_>,
    params: Option<&Object<'_>>,
) -> Result<(), RpcError> {
    let object = &envelope.members;
    if envelope.is_ambiguous {
        return Err(RpcError::invalid_request(
            "Invalid request: ambiguous members",
        ));
    }
    if !object.contains("method") {
        // An answer goes to a question of the server, and no rule is about answers.
        if object.contains("result") || object.contains("error") {
            return Ok(());
        }
        return Err(RpcError::invalid_request(
            "Invalid request: neither a request nor an answer",
        ));
    }
    let method = envelope
        .method
        .as_deref()
        .ok_or_else(|| RpcError::invalid_request("Invalid request: method must be a string"))?;
    if method != "tools/call" {
        return Ok(());
    }
    // Some servers run a call without an id, too.
    if !object.get("id").is_some_and(is_request_id) {
        return Err(RpcError::invalid_request(
            "Invalid request: id must be a string or a number",
        ));
    }
    let params = params
        .ok_or_else(|| RpcError::invalid_request("Invalid request: params must be an object"))?;
    if params.is_ambiguous(&RESERVED_PARAMS) {
        return Err(RpcError::invalid_request(
            "Invalid request: ambiguous params",
        ));
    }
    // Rules are chosen by this name, so a call without a name that can be read could get past them.
    if params.get_str("name").is_none() {
        return Err(RpcError::invalid_params(
            "Invalid params: name must be a string",
        ));
    }
    Ok(())
}

/// Returns `true` if JSON-RPC allows the id: a string or a number, which may have a fraction or any size (JSON-RPC 2.0, 4).
pub fn is_request_id(raw: &RawValue) -> bool {
    matches!(raw.get().as_bytes(), [b'"' | b'-' | b'0'..=b'9', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(text: &str) -> i64 {
        let Ok(object) = Object::parse(text) else {
            return no_object(text).code;
        };
        let params = object.get_object("params");
        let read = ClientMessage::of(&Envelope::of(object), params);
        read.map_or_else(|refused| refused.error.code, |_| 0)
    }

    #[test]
    fn what_parsers_could_read_differently_is_refused() {
        for (text, code) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, 0),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":{"name":1,"name":2}}}"#,
                0,
            ),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, 0),
            ("[]", -32600),
            ("1", -32600),
            ("{", -32700),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m"} x"#, -32700),
            (r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, 0),
            (
                r#"{"jsonrpc":"2.0","id":-99999999999999999999,"method":"m"}"#,
                0,
            ),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":[]}"#,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#, -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","Method":"n"}"#,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"a","NAME":"b"}}"#,
                -32600,
            ),
        ] {
            assert_eq!(code_of(text), code, "{text}");
        }
    }
    #[test]
    fn on_a_session_only_what_is_certain_to_be_no_other_call_is_clear() {
        let code = |text: &str| {
            let Ok(object) = Object::parse(text) else {
                return no_object(text).code;
            };
            let params = object.get_object("params");
            let checked = check_on_session(&Envelope::of(object), params.as_ref());
            checked.map_or_else(|error| error.code, |()| 0)
        };
        for clear in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#,
            r#"{"id":"a","m\u0065thod":"tools\/call","params":{"name":"t","arguments":{"a":1,"a":2}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
            r#"{"id":1.0,"method":"tools/call","params":{"name":"t"}}"#,
        ] {
            assert_eq!(code(clear), 0, "{clear}");
        }
        for (unclear, expected) in [
            (r#"[{"id":1,"method":"ping"}]"#, -32600),
            (r#"{"id":1,"method":"ping"}{}"#, -32700),
            (r#"{"id":1,"method":"ping","params":NaN}"#, -32700),
            ("{}", -32600),
            (r#"{"id":1}"#, -32600),
            (r#"{"id":1,"method":["tools/call"]}"#, -32600),
            (r#"{"id":1,"method":"ping","METHOD":"tools/call"}"#, -32600),
            (r#"{"id":1,"method":"ping","method":"tools/call"}"#, -32600),
            (r#"{"method":"tools/call","params":{"name":"t"}}"#, -32600),
            (
                r#"{"id":null,"method":"tools/call","params":{"name":"t"}}"#,
                -32600,
            ),
            (r#"{"id":1,"method":"tools/call","params":["t"]}"#, -32600),
            (r#"{"id":1,"method":"tools/call"}"#, -32600),
            (r#"{"id":1,"method":"tools/call","params":{}}"#, -32602),
            (
                r#"{"id":1,"method":"tools/call","params":{"name":["t"]}}"#,
                -32602,
            ),
            (
                r#"{"id":1,"method":"tools/call","params":{"name":"u","n\u0061me":"t"}}"#,
                -32600,
            ),
            (
                "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"u\",\"ta\u{17f}k\":{}}}",
                -32600,
            ),
        ] {
            assert_eq!(code(unclear), expected, "{unclear}");
        }
    }
}
